"""gpt-oss: experts with biases and a clamped gate, sinks, and windows in every other layer."""

from tensor_ops_decode.models.checkpoint import (
    DEFAULTS,
    gguf_decoder,
    hugging_face_decoder,
    layer_windows,
)
from tensor_ops_decode.models.decoder import GGUF_NAMES, HUGGING_FACE_NAMES, Decoder, Family
from tensor_ops_decode.models.experts import GGUF_EXPERTS, gguf_experts, hugging_face_experts
from tensor_ops_decode.models.rope import gguf_rope
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FORMATS, Weights

__all__ = ["FAMILIES"]

_GPT_OSS = DEFAULTS | {
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 150000.0,
    "rope_parameters": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
    "attention_bias": True,
    "sliding_window": 128,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "swiglu_alpha": 1.702,
    "swiglu_limit": 7.0,
}
_SCORING = {"scoring": "softmax_of_chosen", "is_normalised": False}
_GGUF = (
    GGUF_NAMES
    | GGUF_EXPERTS
    | {
        "mlp_norm": "post_attention_norm",
        "sinks": "attn_sinks.weight",
        "expert_gate_bias": "ffn_gate_exps.bias",
        "expert_up_bias": "ffn_up_exps.bias",
        "expert_down_bias": "ffn_down_exps.bias",
    }
)
_HUGGING_FACE = HUGGING_FACE_NAMES | {
    "sinks": "self_attn.sinks",
    "router": "mlp.router",
    "expert_gate": "mlp.experts.gate_up_proj",
    "expert_up": "mlp.experts.gate_up_proj",
    "expert_down": "mlp.experts.down_proj",
    "expert_gate_bias": "mlp.experts.gate_up_proj_bias",
    "expert_up_bias": "mlp.experts.gate_up_proj_bias",
    "expert_down_bias": "mlp.experts.down_proj_bias",
}
# Rows of gate and up alternate. They are columns in floating point, and rows where they are stored
# in blocks.
_HALVES = {
    "expert_gate": ("even_rows",),
    "expert_up": ("odd_rows",),
    "expert_gate_bias": ("even_columns",),
    "expert_up_bias": ("odd_columns",),
}
_TRANSPOSED = {
    "expert_gate": ("transpose", "even_rows"),
    "expert_up": ("transpose", "odd_rows"),
    "expert_down": ("transpose",),
}


def _gguf(files: Weights, settings: ModelSettings) -> Decoder:
    layers, window = settings.size("block_count"), settings.size("attention.sliding_window")
    head_size = settings.size("attention.key_length")
    return gguf_decoder(
        files,
        settings,
        names=_GGUF,
        ropes=(gguf_rope(files, settings, head_size, truncates=False),) * layers,
        windows=tuple(0 if layer % 2 else window for layer in range(layers)),
        activation="swiglu_clamped",
        activation_settings={"limit": 7.0, "alpha": 1.702},
        experts=gguf_experts(settings, settings.size("feed_forward_length"), **_SCORING),
    )


def _hugging_face(files: Weights, settings: ModelSettings) -> Decoder:
    inner = settings.size("intermediate_size")
    counts = ("num_local_experts", "num_experts")
    experts = hugging_face_experts(settings, *counts, intermediate=inner, **_SCORING)
    biases = ("q", "k", "v", "o") if settings.flag("attention_bias") else ()
    stored = "model.layers.0.mlp.experts.down_proj"
    is_float = stored not in files.names or FORMATS[files.header(stored).type].is_float
    return hugging_face_decoder(
        files,
        settings,
        names=_HUGGING_FACE,
        biases=(*biases, "router"),
        transforms=_HALVES | (_TRANSPOSED if is_float else {}),
        windows=layer_windows(settings, lambda layer: layer % 2 == 0),
        activation="swiglu_clamped",
        activation_settings={
            "limit": settings.number("swiglu_limit"),
            "alpha": settings.number("swiglu_alpha"),
        },
        experts=experts,
    )


FAMILIES = (
    Family("gpt-oss", "gpt-oss", "GptOssForCausalLM", _GPT_OSS, _gguf, _hugging_face, True),
)

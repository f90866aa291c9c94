"""Qwen 2, with biases of queries, keys and values, and Qwen 3, with norms of queries and keys.

Either has models that are mixtures of experts.
"""

from typing import Any

from tensor_ops_decode.models.checkpoint import (
    DEFAULTS,
    gguf_decoder,
    hugging_face_decoder,
    layer_windows,
)
from tensor_ops_decode.models.decoder import GGUF_NAMES, HUGGING_FACE_NAMES, Decoder, Family
from tensor_ops_decode.models.experts import (
    GGUF_EXPERTS,
    HUGGING_FACE_EXPERTS,
    QWEN_EXPERTS,
    alternating_layers,
    gguf_experts,
    hugging_face_experts,
)
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import Weights

__all__ = ["FAMILIES"]

_QWEN2 = DEFAULTS | {
    "num_key_value_heads": 32,
    "intermediate_size": 22016,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
_QWEN3 = _QWEN2 | {"head_dim": 128, "attention_bias": False}
_EXPERTS = {
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": False,
    "intermediate_size": 5632,
    "hidden_size": 2048,
    "num_hidden_layers": 24,
}
_QWEN2_MOE = (
    _QWEN2
    | _EXPERTS
    | {
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "qkv_bias": True,
    }
)
_QWEN3_MOE = (
    _QWEN2
    | _EXPERTS
    | {
        "intermediate_size": 6144,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 768,
        "num_local_experts": 128,
        "num_experts_per_tok": 8,
        "attention_bias": False,
    }
)
_BIASES = ("q", "k", "v")
_GGUF_NORMS = {"q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}
_HUGGING_FACE_NORMS = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}


def _qwen2_gguf(files: Weights, settings: ModelSettings) -> Decoder:
    return gguf_decoder(files, settings, biases=_BIASES)


def _qwen3_gguf(files: Weights, settings: ModelSettings) -> Decoder:
    return gguf_decoder(files, settings, names=GGUF_NAMES | _GGUF_NORMS)


def _qwen2(files: Weights, settings: ModelSettings) -> Decoder:
    return _hugging_face(files, settings, biases=_BIASES)


def _qwen3(files: Weights, settings: ModelSettings) -> Decoder:
    names = HUGGING_FACE_NAMES | _HUGGING_FACE_NORMS
    return _hugging_face(files, settings, names=names, bias_flags=("attention_bias",))


def _qwen2_moe_gguf(files: Weights, settings: ModelSettings) -> Decoder:
    inner = settings.size("feed_forward_length")
    experts = gguf_experts(
        settings,
        inner // settings.size("expert_used_count"),
        is_normalised=False,
        shared=settings.size("expert_shared_feed_forward_length", inner),
    )
    names = GGUF_NAMES | GGUF_EXPERTS | {"shared_router": "ffn_gate_inp_shexp"}
    return gguf_decoder(files, settings, names=names, biases=_BIASES, experts=experts)


def _qwen3_moe_gguf(files: Weights, settings: ModelSettings) -> Decoder:
    inner = settings.size("feed_forward_length") // settings.size("expert_used_count")
    experts = gguf_experts(settings, inner)
    names = GGUF_NAMES | _GGUF_NORMS | GGUF_EXPERTS
    return gguf_decoder(files, settings, names=names, experts=experts)


def _qwen2_moe(files: Weights, settings: ModelSettings) -> Decoder:
    experts = hugging_face_experts(
        settings,
        "num_experts",
        layers=alternating_layers(settings),
        is_normalised=settings.flag("norm_topk_prob"),
        shared=settings.size("shared_expert_intermediate_size"),
    )
    biases = _BIASES if settings.flag("qkv_bias") else ()
    if settings.flag("use_sliding_window"):
        windows = layer_windows(
            settings,
            lambda layer: layer % 2 == 0 and layer < settings.size_or_none("max_window_layers"),
        )
    else:
        windows = (0,) * settings.size("num_hidden_layers")
    names = HUGGING_FACE_NAMES | QWEN_EXPERTS
    return hugging_face_decoder(
        files, settings, names=names, biases=biases, windows=windows, experts=experts
    )


def _qwen3_moe(files: Weights, settings: ModelSettings) -> Decoder:
    experts = hugging_face_experts(
        settings,
        "num_local_experts",
        "num_experts",
        layers=alternating_layers(settings),
        is_normalised=settings.flag("norm_topk_prob"),
    )
    # All layers have the window.
    window = settings.size_or_null("sliding_window") if settings.flag("use_sliding_window") else 0
    return hugging_face_decoder(
        files,
        settings,
        names=HUGGING_FACE_NAMES | _HUGGING_FACE_NORMS | HUGGING_FACE_EXPERTS,
        bias_flags=("attention_bias",),
        windows=(window,) * settings.size("num_hidden_layers"),
        experts=experts,
    )


def _hugging_face(files: Weights, settings: ModelSettings, **given: Any) -> Decoder:
    if settings.flag("use_sliding_window"):
        given["windows"] = layer_windows(
            settings, lambda layer: layer >= settings.size_or_none("max_window_layers")
        )
    return hugging_face_decoder(files, settings, **given)


FAMILIES = (
    Family("Qwen 2 and 2.5", "qwen2", "Qwen2ForCausalLM", _QWEN2, _qwen2_gguf, _qwen2),
    Family("Qwen 3", "qwen3", "Qwen3ForCausalLM", _QWEN3, _qwen3_gguf, _qwen3),
    Family(
        "Qwen 2 MoE",
        "qwen2moe",
        "Qwen2MoeForCausalLM",
        _QWEN2_MOE,
        _qwen2_moe_gguf,
        _qwen2_moe,
        may_have_experts=True,
    ),
    Family(
        "Qwen 3 MoE",
        "qwen3moe",
        "Qwen3MoeForCausalLM",
        _QWEN3_MOE,
        _qwen3_moe_gguf,
        _qwen3_moe,
        may_have_experts=True,
    ),
)

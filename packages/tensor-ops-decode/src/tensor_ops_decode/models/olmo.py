"""OLMo 2 and 3, whose norms are behind attention and MLP, and of whole rows of queries and keys.

OLMo 3 has windows in three layers of four. The scaling of its rotation is for the others alone.
OLMoE is a mixture of experts, with norms before its parts.
"""

from dataclasses import replace
from typing import Any

from tensor_ops_decode.models.checkpoint import (
    DEFAULTS,
    gguf_decoder,
    hugging_face_decoder,
    layer_ropes,
    layer_windows,
)
from tensor_ops_decode.models.decoder import GGUF_NAMES, HUGGING_FACE_NAMES, Decoder, Family
from tensor_ops_decode.models.experts import (
    GGUF_EXPERTS,
    HUGGING_FACE_EXPERTS,
    gguf_experts,
    hugging_face_experts,
)
from tensor_ops_decode.models.rope import gguf_rope
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["FAMILIES"]

_PERIOD = 4
_OLMO2 = DEFAULTS | {
    "intermediate_size": 11008,
    "vocab_size": 50304,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "attention_bias": False,
}
_OLMO3 = _OLMO2 | {"rope_theta": 5e5, "sliding_window": 4096}
_OLMOE = _OLMO2 | {
    "hidden_size": 2048,
    "intermediate_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "max_position_embeddings": 4096,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "norm_topk_prob": False,
}
_FIRST_NORMS = ("attention_norm", "mlp_norm")
_GGUF = {role: name for role, name in GGUF_NAMES.items() if role not in _FIRST_NORMS} | {
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "attention_post_norm": "post_attention_norm",
    "mlp_post_norm": "post_ffw_norm",
}
_HUGGING_FACE = {
    role: name for role, name in HUGGING_FACE_NAMES.items() if role not in _FIRST_NORMS
} | {
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "attention_post_norm": "post_attention_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
}


def _gguf(files: Weights, settings: ModelSettings) -> Decoder:
    windows = _gguf_windows(settings)
    decoder = gguf_decoder(files, settings, names=_GGUF, norms_rows=True, windows=windows)
    if not any(windows):
        return decoder
    base = settings.number("rope.freq_base_swa", settings.number("rope.freq_base", 10000.0))
    plain = ModelSettings(settings.where, {"rope.freq_base": base})
    within = gguf_rope(files, plain, decoder.head_size)
    ropes = zip(windows, decoder.ropes, strict=True)
    return replace(decoder, ropes=tuple(within if window else rope for window, rope in ropes))


def _gguf_windows(settings: ModelSettings) -> tuple[int, ...]:
    layers, window = settings.size("block_count"), settings.size_or_none("attention.sliding_window")
    name = "attention.sliding_window_pattern"
    pattern = settings.values.get(name)
    if not isinstance(pattern, list):
        period = settings.size(name, _PERIOD)
        pattern = [(layer + 1) % period != 0 for layer in range(layers)]
    if len(pattern) != layers or not all(isinstance(each, bool) for each in pattern):
        raise FileFormatError(
            f"{settings.where}: {name} must be true or false for each of {layers} layers, got "
            f"{pattern!r:.80}"
        )
    return tuple(window if each else 0 for each in pattern)


def _olmo2(files: Weights, settings: ModelSettings, **given: Any) -> Decoder:
    flags = ("attention_bias",)
    return hugging_face_decoder(
        files, settings, names=_HUGGING_FACE, norms_rows=True, bias_flags=flags, **given
    )


def _olmo3(files: Weights, settings: ModelSettings) -> Decoder:
    windows = layer_windows(settings, lambda layer: (layer + 1) % _PERIOD != 0)
    # transformers gives the base of the model to layers without a window alone.
    bases = {**settings.values, "rope_local_base_freq": _OLMO3["rope_theta"]}
    ropes = layer_ropes(ModelSettings(settings.where, bases), windows)
    return _olmo2(files, settings, windows=windows, ropes=ropes)


def _olmoe_gguf(files: Weights, settings: ModelSettings) -> Decoder:
    inner = settings.size("feed_forward_length")
    experts = gguf_experts(settings, inner, is_normalised=False)
    norms = {role: _GGUF[role] for role in ("q_norm", "k_norm")}
    names = GGUF_NAMES | norms | GGUF_EXPERTS
    return gguf_decoder(files, settings, names=names, norms_rows=True, experts=experts)


def _olmoe(files: Weights, settings: ModelSettings) -> Decoder:
    settings.require("clip_qkv", None)
    experts = hugging_face_experts(
        settings,
        "num_experts",
        "num_local_experts",
        intermediate=settings.size("intermediate_size"),
        is_normalised=settings.flag("norm_topk_prob"),
    )
    norms = {role: _HUGGING_FACE[role] for role in ("q_norm", "k_norm")}
    return hugging_face_decoder(
        files,
        settings,
        names=HUGGING_FACE_NAMES | norms | HUGGING_FACE_EXPERTS,
        norms_rows=True,
        bias_flags=("attention_bias",),
        experts=experts,
    )


FAMILIES = (
    Family("OLMo 2", "olmo2", "Olmo2ForCausalLM", _OLMO2, _gguf, _olmo2),
    Family("OLMo 3", "olmo2", "Olmo3ForCausalLM", _OLMO3, _gguf, _olmo3),
    Family("OLMoE", "olmoe", "OlmoeForCausalLM", _OLMOE, _olmoe_gguf, _olmoe, True),
)

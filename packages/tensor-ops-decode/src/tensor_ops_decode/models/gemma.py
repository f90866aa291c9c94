"""Gemma 1 to 3: norms with one added to their weights, scaled embeddings, gelu.

Gemma 2 has norms before and after, windows in every other layer, and soft caps. Gemma 3 has windows
in five layers of six, which rotate by a base of their own, and norms of queries and keys.
"""

from typing import Any

from tensor_ops_decode.models.checkpoint import (
    DEFAULTS,
    gguf_decoder,
    hugging_face_decoder,
    layer_ropes,
    layer_windows,
)
from tensor_ops_decode.models.decoder import GGUF_NAMES, HUGGING_FACE_NAMES, Decoder, Family
from tensor_ops_decode.models.rope import gguf_rope
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["FAMILIES"]

_GEMMA1 = DEFAULTS | {
    "hidden_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "intermediate_size": 24576,
    "vocab_size": 256000,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "attention_bias": False,
}
_GEMMA2 = _GEMMA1 | {
    "hidden_size": 2304,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 9216,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
_GEMMA3 = _GEMMA2 | {
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "rope_theta": 1e6,
    "rope_local_base_freq": 10000.0,
    "sliding_window_pattern": 6,
    "final_logit_softcapping": None,
}
_GELU: Any = {"activation": "gelu_mul", "activation_settings": {"approximate": "tanh"}}
_GGUF2 = GGUF_NAMES | {
    "attention_post_norm": "post_attention_norm",
    "mlp_post_norm": "post_ffw_norm",
}
_GGUF3 = _GGUF2 | {"q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}
_HUGGING_FACE2 = HUGGING_FACE_NAMES | {
    "attention_post_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
}
_HUGGING_FACE3 = _HUGGING_FACE2 | {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}


def _gguf1(files: Weights, settings: ModelSettings, **given: Any) -> Decoder:
    scale = settings.size("embedding_length") ** 0.5
    return gguf_decoder(files, settings, **_GELU, embedding_scale=scale, **given)


def _gguf2(files: Weights, settings: ModelSettings) -> Decoder:
    return _gguf1(
        files,
        settings,
        names=_GGUF2,
        windows=_gguf_windows(settings, window=4096, period=2),
        scale=_gguf_scale(settings, largest=46),
        attention_cap=settings.number_or_none("attn_logit_softcapping", 50.0),
        logit_cap=settings.number_or_none("final_logit_softcapping", 30.0),
    )


def _gguf3(files: Weights, settings: ModelSettings) -> Decoder:
    windows = _gguf_windows(settings, window=0, period=6)
    size = settings.size("attention.key_length")
    everywhere = gguf_rope(files, settings, size)
    base = settings.number("rope.freq_base_swa", 10000.0)
    rotated = {"rope.dimension_count": settings.values.get("rope.dimension_count")}
    # The scaling of the rotation is not for layers with a window.
    local = ModelSettings(settings.where, {"rope.freq_base": base, **rotated})
    within = gguf_rope(files, local, size)
    return _gguf1(
        files,
        settings,
        names=_GGUF3,
        windows=windows,
        ropes=tuple(within if window else everywhere for window in windows),
        scale=_gguf_scale(settings, largest=62),
        logit_cap=settings.number_or_none("final_logit_softcapping", 0.0),
    )


def _gguf_windows(settings: ModelSettings, *, window: int, period: int) -> tuple[int, ...]:
    """Return the window of each layer; the last layer of each period has none."""
    layers = settings.size("block_count")
    window = settings.size_or_none("attention.sliding_window", window)
    period = settings.size("attention.sliding_window_pattern", period)
    return tuple(window if (layer + 1) % period else 0 for layer in range(layers))


def _gguf_scale(settings: ModelSettings, *, largest: int) -> float:
    """Return the scale of scores, which files do not have.

    As in llama.cpp, the model with the most layers is known by their number.
    """
    size = settings.size("attention.key_length")
    if settings.size("block_count") == largest:
        size = settings.size("embedding_length") // settings.size("attention.head_count")
    return settings.number("attention.scale", size**-0.5)


def _hugging_face1(files: Weights, settings: ModelSettings) -> Decoder:
    # The first files say gelu, and mean its approximation by tanh.
    if settings.values.get("hidden_act") != "gelu":
        settings.require("hidden_act", "gelu_pytorch_tanh")
    return _hugging_face(files, settings)


def _hugging_face2(files: Weights, settings: ModelSettings) -> Decoder:
    settings.require("hidden_activation", "gelu_pytorch_tanh")
    return _hugging_face(
        files,
        settings,
        names=_HUGGING_FACE2,
        windows=layer_windows(settings, lambda layer: layer % 2 == 0),
        scale=settings.number("query_pre_attn_scalar") ** -0.5,
        attention_cap=settings.number_or_null("attn_logit_softcapping"),
        logit_cap=settings.number_or_null("final_logit_softcapping"),
    )


def _hugging_face3(files: Weights, settings: ModelSettings) -> Decoder:
    settings.require("hidden_activation", "gelu_pytorch_tanh")
    windows = layer_windows(
        settings, lambda layer: (layer + 1) % settings.size("sliding_window_pattern") != 0
    )
    return _hugging_face(
        files,
        settings,
        names=_HUGGING_FACE3,
        windows=windows,
        ropes=layer_ropes(settings, windows),
        scale=settings.number("query_pre_attn_scalar") ** -0.5,
        logit_cap=settings.number_or_null("final_logit_softcapping"),
    )


def _hugging_face(files: Weights, settings: ModelSettings, **given: Any) -> Decoder:
    if settings.values.get("use_bidirectional_attention"):
        raise FileFormatError(f"{settings.where}: use_bidirectional_attention is not supported")
    return hugging_face_decoder(
        files,
        settings,
        bias_flags=("attention_bias",),
        **_GELU,
        embedding_scale=settings.size("hidden_size") ** 0.5,
        norm_transform=("plus_one",),
        **given,
    )


FAMILIES = (
    Family("Gemma 1", "gemma", "GemmaForCausalLM", _GEMMA1, _gguf1, _hugging_face1),
    Family("Gemma 2", "gemma2", "Gemma2ForCausalLM", _GEMMA2, _gguf2, _hugging_face2),
    Family("Gemma 3", "gemma3", "Gemma3ForCausalLM", _GEMMA3, _gguf3, _hugging_face3),
)

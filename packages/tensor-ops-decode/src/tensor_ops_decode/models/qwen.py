"""Qwen 2, with biases of queries, keys and values, and Qwen 3, with norms of queries and keys."""

from typing import Any

from tensor_ops_decode.models.checkpoint import (
    DEFAULTS,
    gguf_decoder,
    hugging_face_decoder,
    layer_windows,
)
from tensor_ops_decode.models.decoder import GGUF_NAMES, HUGGING_FACE_NAMES, Decoder, Family
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


def _hugging_face(files: Weights, settings: ModelSettings, **given: Any) -> Decoder:
    if settings.flag("use_sliding_window"):
        given["windows"] = layer_windows(
            settings, lambda layer: layer >= settings.size_or_none("max_window_layers")
        )
    return hugging_face_decoder(files, settings, **given)


FAMILIES = (
    Family("Qwen 2 and 2.5", "qwen2", "Qwen2ForCausalLM", _QWEN2, _qwen2_gguf, _qwen2),
    Family("Qwen 3", "qwen3", "Qwen3ForCausalLM", _QWEN3, _qwen3_gguf, _qwen3),
)

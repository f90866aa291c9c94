"""Llama 1 to 3, SmolLM and models of the same architecture; Mistral, which has a window."""

from typing import Any

from tensor_ops_decode.models.checkpoint import (
    DEFAULTS,
    gguf_decoder,
    hugging_face_decoder,
    layer_windows,
)
from tensor_ops_decode.models.decoder import Decoder, Family
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import Weights

__all__ = ["FAMILIES", "MISTRAL", "mistral"]

_LLAMA = DEFAULTS | {
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "attention_bias": False,
    "mlp_bias": False,
}
#: What a Mistral is by default.
MISTRAL = DEFAULTS | {
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 32000,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
}


def _gguf(files: Weights, settings: ModelSettings) -> Decoder:
    # llama.cpp's converter permutes the rows of q and k for this. The window of Mistral is not in
    # the file.
    return gguf_decoder(files, settings, rotation="interleaved")


def _llama(files: Weights, settings: ModelSettings) -> Decoder:
    return hugging_face_decoder(files, settings, bias_flags=("attention_bias", "mlp_bias"))


def mistral(files: Weights, settings: ModelSettings, **given: Any) -> Decoder:
    """Return what config.json says of a Mistral; the fields of `Decoder` are as of a family."""
    # For a file that lists the types of its layers, transformers takes the class of Ministral.
    windows = layer_windows(settings, lambda layer: True)
    return hugging_face_decoder(files, settings, windows=windows, **given)


FAMILIES = (
    Family("Llama 1 to 3, SmolLM", "llama", "LlamaForCausalLM", _LLAMA, _gguf, _llama),
    Family("Mistral", "llama", "MistralForCausalLM", MISTRAL, _gguf, mistral),
)

"""Llama 1 to 3, SmolLM and the like; Mistral, which has a window; Mixtral, which has experts."""

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
    gguf_experts,
    hugging_face_experts,
)
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
_MIXTRAL = MISTRAL | {
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}

_MIXTRAL_FILE_EXPERTS = {
    "router": "block_sparse_moe.gate",
    "expert_gate": "block_sparse_moe.experts.{}.w1",
    "expert_up": "block_sparse_moe.experts.{}.w3",
    "expert_down": "block_sparse_moe.experts.{}.w2",
}


def _gguf(files: Weights, settings: ModelSettings) -> Decoder:
    # llama.cpp's converter permutes the rows of q and k for this. The window of Mistral is not in
    # the file. That of Mixtral has the same architecture.
    if not settings.values.get("expert_count"):
        return gguf_decoder(files, settings, rotation="interleaved")
    experts = gguf_experts(settings, settings.size("feed_forward_length"))
    names = GGUF_NAMES | GGUF_EXPERTS
    return gguf_decoder(files, settings, names=names, rotation="interleaved", experts=experts)


def _llama(files: Weights, settings: ModelSettings) -> Decoder:
    return hugging_face_decoder(files, settings, bias_flags=("attention_bias", "mlp_bias"))


def mistral(files: Weights, settings: ModelSettings, **given: Any) -> Decoder:
    """Return what config.json says of a Mistral; the fields of `Decoder` are as of a family."""
    # For a file that lists the types of its layers, transformers takes the class of Ministral.
    windows = layer_windows(settings, lambda layer: True)
    return hugging_face_decoder(files, settings, windows=windows, **given)


def _mixtral(files: Weights, settings: ModelSettings) -> Decoder:
    inner = settings.size("intermediate_size")
    experts = hugging_face_experts(settings, "num_local_experts", "num_experts", intermediate=inner)
    names = HUGGING_FACE_NAMES | HUGGING_FACE_EXPERTS
    # The names in files are not those in memory.
    if any("block_sparse_moe" in name for name in files.names):
        names |= _MIXTRAL_FILE_EXPERTS
    windows = layer_windows(settings, lambda layer: True)
    return hugging_face_decoder(files, settings, names=names, windows=windows, experts=experts)


FAMILIES = (
    Family("Llama 1 to 3, SmolLM", "llama", "LlamaForCausalLM", _LLAMA, _gguf, _llama),
    Family("Mistral", "llama", "MistralForCausalLM", MISTRAL, _gguf, mistral),
    Family("Mixtral", "llama", "MixtralForCausalLM", _MIXTRAL, _gguf, _mixtral, True),
)

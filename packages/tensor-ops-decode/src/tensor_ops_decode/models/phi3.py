"""Phi 3 and 4, whose files have q, k and v as one matrix, and gate and up as one."""

from tensor_ops_decode.models.checkpoint import DEFAULTS, gguf_decoder, hugging_face_decoder
from tensor_ops_decode.models.decoder import GGUF_NAMES, HUGGING_FACE_NAMES, Decoder, Family
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import Weights

__all__ = ["FAMILIES"]

_DEFAULTS = DEFAULTS | {
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "vocab_size": 32064,
    "max_position_embeddings": 4096,
    "original_max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "sliding_window": None,
}
_GGUF = GGUF_NAMES | {"qkv": "attn_qkv", "gate_up": "ffn_up"}
_HUGGING_FACE = HUGGING_FACE_NAMES | {"qkv": "self_attn.qkv_proj", "gate_up": "mlp.gate_up_proj"}


def _gguf(files: Weights, settings: ModelSettings) -> Decoder:
    window = settings.size_or_none("attention.sliding_window", 0)
    windows = (window,) * settings.size("block_count")
    return gguf_decoder(files, settings, names=_GGUF, windows=windows)


def _hugging_face(files: Weights, settings: ModelSettings) -> Decoder:
    windows = (settings.size_or_null("sliding_window"),) * settings.size("num_hidden_layers")
    return hugging_face_decoder(
        files, settings, names=_HUGGING_FACE, windows=windows, rotates_in_part=True
    )


FAMILIES = (Family("Phi 3 and 4", "phi3", "Phi3ForCausalLM", _DEFAULTS, _gguf, _hugging_face),)

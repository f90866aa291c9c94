"""Granite 3 and 4 without experts, a Llama with factors of its own for all that is added up."""

from typing import Any

from tensor_ops_decode.models.checkpoint import DEFAULTS, gguf_decoder, hugging_face_decoder
from tensor_ops_decode.models.decoder import Decoder, Family
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import Weights

__all__ = ["FACTORS", "FAMILIES", "gguf_factors", "hugging_face_factors"]

#: The defaults of its factors.
FACTORS: dict[str, Any] = {
    "embedding_multiplier": 1.0,
    "logits_scaling": 1.0,
    "residual_multiplier": 1.0,
    "attention_multiplier": 1.0,
}
_DEFAULTS = (
    DEFAULTS
    | FACTORS
    | {
        "intermediate_size": 11008,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "attention_bias": False,
        "mlp_bias": False,
    }
)


def gguf_factors(settings: ModelSettings) -> dict[str, Any]:
    """Return the fields of a `Decoder` that are factors; as in llama.cpp, 0 is none."""
    scale = settings.number_or_none("attention.scale", 0.0)
    return {
        "embedding_scale": settings.number_or_none("embedding_scale", 0.0) or 1.0,
        "residual_scale": settings.number_or_none("residual_scale", 0.0) or 1.0,
        "logit_scale": 1 / settings.number("logit_scale"),
        **({"scale": scale} if scale else {}),
    }


def hugging_face_factors(settings: ModelSettings) -> dict[str, Any]:
    """Return the fields of a `Decoder` that are factors."""
    return {
        "embedding_scale": settings.number("embedding_multiplier"),
        "residual_scale": settings.number("residual_multiplier"),
        "logit_scale": 1 / settings.number("logits_scaling"),
        "scale": settings.number("attention_multiplier"),
    }


def _gguf(files: Weights, settings: ModelSettings) -> Decoder:
    settings.require("rope.scaling.finetuned", True)
    return gguf_decoder(files, settings, rotation="interleaved", **gguf_factors(settings))


def _hugging_face(files: Weights, settings: ModelSettings) -> Decoder:
    flags = ("attention_bias", "mlp_bias")
    return hugging_face_decoder(files, settings, bias_flags=flags, **hugging_face_factors(settings))


FAMILIES = (Family("Granite 3", "granite", "GraniteForCausalLM", _DEFAULTS, _gguf, _hugging_face),)

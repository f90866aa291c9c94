"""Ministral 3, a Mistral whose rotation is scaled by YaRN and whose queries grow with positions.

Folders of it, and of Mistral Small from 3.1 on, mostly have the text beside a model of images.
"""

from dataclasses import replace
from typing import Any

from tensor_ops_decode.models.checkpoint import DEFAULTS, gguf_decoder, hugging_face_decoder
from tensor_ops_decode.models.decoder import HUGGING_FACE_NAMES, Decoder, Family
from tensor_ops_decode.models.llama import MISTRAL, mistral
from tensor_ops_decode.models.rope import original_length
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["FAMILIES"]

_DEFAULTS = DEFAULTS | {
    "num_hidden_layers": 34,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "vocab_size": 131072,
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-5,
    "sliding_window": None,
}
# Those of a config.json without any.
_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale_all_dim": 1.0,
    "mscale": 1.0,
    "llama_4_scaling_beta": 0.1,
}
# The text of a config.json that says nothing of it.
_TEXT = {
    "head_dim": 128,
    "hidden_size": 5120,
    "intermediate_size": 32768,
    "num_hidden_layers": 40,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e9,
    "sliding_window": None,
    "vocab_size": 131072,
}


def _gguf(files: Weights, settings: ModelSettings) -> Decoder:
    growth = settings.number_or_none("attention.temperature_scale", 0.0)
    name = "rope.scaling.original_context_length"
    length = settings.size(name, settings.size("context_length"))
    return _growing(gguf_decoder(files, settings, rotation="interleaved"), growth, length)


def _ministral(files: Weights, settings: ModelSettings, **given: Any) -> Decoder:
    if not settings.values.get("rope_scaling") and settings.values.get("rope_parameters") is None:
        settings = ModelSettings(settings.where, {**settings.values, "rope_parameters": _ROPE})
    is_old = bool(settings.values.get("rope_scaling"))
    rope = settings.section("rope_scaling" if is_old else "rope_parameters")
    windows = (settings.size_or_null("sliding_window"),) * settings.size("num_hidden_layers")
    decoder = hugging_face_decoder(files, settings, windows=windows, **given)
    growth = rope.number_or_none("llama_4_scaling_beta", 0.0)
    return _growing(decoder, growth, original_length(settings, rope))


def _growing(decoder: Decoder, growth: float, length: int) -> Decoder:
    """Return a decoder whose queries grow with their positions, from a length on."""
    rope = replace(decoder.ropes[0], query_growth=growth, query_length=length)
    return replace(decoder, ropes=(rope,) * decoder.layers)


def _text(files: Weights, settings: ModelSettings) -> Decoder:
    """Return what config.json says of the text in a model of more than text."""
    is_tied = files.metadata.get("tie_word_embeddings", True)
    given = {**(settings.values or _TEXT), "tie_word_embeddings": is_tied}
    kinds = {"mistral": (MISTRAL, mistral), "ministral3": (_DEFAULTS, _ministral)}
    kind = given.get("model_type", "mistral")
    if not isinstance(kind, str) or kind not in kinds:
        raise FileFormatError(
            f"{settings.where}: the model_type of text_config is {kind!r:.80}; supported are "
            f"{', '.join(kinds)}"
        )
    defaults, read = kinds[kind]
    known, prefixes = set(files.names), ("model.language_model.", "language_model.model.")
    before = next((each for each in prefixes if f"{each}embed_tokens.weight" in known), prefixes[0])
    names = {role: name.replace("model.", before, 1) for role, name in HUGGING_FACE_NAMES.items()}
    if "language_model.lm_head.weight" in known:
        names["head"] = "language_model.lm_head"
    return read(files, ModelSettings(settings.where, {**defaults, **given}), names=names)


FAMILIES = (
    Family("Ministral 3", "mistral3", "Ministral3ForCausalLM", _DEFAULTS, _gguf, _ministral),
    Family(
        "Ministral 3 and Mistral 3, text",
        "mistral3",
        "Mistral3ForConditionalGeneration",
        {},
        _gguf,
        _text,
        within="text_config",
    ),
)

"""SmolLM 3, a Llama of which some layers do not rotate queries and keys."""

from collections.abc import Iterable
from dataclasses import replace

from tensor_ops_decode.models.checkpoint import (
    DEFAULTS,
    gguf_decoder,
    hugging_face_decoder,
    layer_windows,
)
from tensor_ops_decode.models.decoder import Decoder, Family
from tensor_ops_decode.models.rope import Rope
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["FAMILIES"]

_PERIOD = 4
_DEFAULTS = DEFAULTS | {
    "hidden_size": 2048,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 11008,
    "vocab_size": 128256,
    "max_position_embeddings": 32768,
    "rope_theta": 2e6,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "use_sliding_window": False,
    "sliding_window": None,
    "no_rope_layer_interval": _PERIOD,
}


def _gguf(files: Weights, settings: ModelSettings) -> Decoder:
    # Which layers rotate is not in the file.
    decoder = gguf_decoder(files, settings, rotation="interleaved")
    return _rotating_in(decoder, [(layer + 1) % _PERIOD for layer in range(decoder.layers)])


def _hugging_face(files: Weights, settings: ModelSettings) -> Decoder:
    rotates = _rotating_layers(settings)
    has_window = settings.flag("use_sliding_window") and settings.size_or_null("sliding_window") > 0
    windows = layer_windows(settings, lambda layer: has_window and not rotates[layer])
    flags = ("attention_bias", "mlp_bias")
    decoder = hugging_face_decoder(files, settings, bias_flags=flags, windows=windows)
    return _rotating_in(decoder, rotates)


def _rotating_layers(settings: ModelSettings) -> list[int]:
    """Return for each layer whether it rotates, as 0 or another number."""
    name, layers = "no_rope_layers", settings.size("num_hidden_layers")
    rotates = settings.values.get(name)
    if rotates is None:
        period = settings.size("no_rope_layer_interval")
        return [(layer + 1) % period for layer in range(layers)]
    if not isinstance(rotates, list) or not all(isinstance(each, int) for each in rotates):
        raise FileFormatError(f"{settings.where}: {name} must be a list of 0 and 1")
    if len(rotates) < layers:
        raise FileFormatError(
            f"{settings.where}: {name} must have a number for each of {layers} layers, got "
            f"{len(rotates)}"
        )
    return rotates[:layers]


def _rotating_in(decoder: Decoder, rotates: Iterable[int]) -> Decoder:
    """Return a decoder that rotates in some layers alone."""
    ropes = zip(rotates, decoder.ropes, strict=True)
    return replace(decoder, ropes=tuple(rope if each else Rope(()) for each, rope in ropes))


FAMILIES = (Family("SmolLM 3", "smollm3", "SmolLM3ForCausalLM", _DEFAULTS, _gguf, _hugging_face),)

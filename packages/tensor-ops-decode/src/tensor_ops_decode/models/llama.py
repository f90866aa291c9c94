"""Llama 1 to 3, SmolLM and models of the same architecture."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tensor_ops_decode.models.decoder import GGUF_NAMES, HUGGING_FACE_NAMES, Decoder
from tensor_ops_decode.models.settings import Settings
from tensor_ops_decode.node_kind import Array
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["ARCHITECTURES", "decoder_of"]

ARCHITECTURES = ("llama", "LlamaForCausalLM")


def decoder_of(files: Weights) -> Decoder:
    """Return what the program is made from, of a GGUF file or a folder of Hugging Face."""
    is_gguf = "general.architecture" in files.metadata
    return _from_gguf(files) if is_gguf else _from_hugging_face(files)


def _from_gguf(files: Weights) -> Decoder:
    prefix = "llama."
    metadata = files.metadata
    settings = Settings(
        files.path,
        {key.removeprefix(prefix): metadata[key] for key in metadata if key.startswith(prefix)},
    )
    for name in ("expert_count", "expert_used_count"):
        settings.require(name, 0, 0)
    heads, hidden = settings.size("attention.head_count"), settings.size("embedding_length")
    head_size = settings.size("attention.key_length", _head_size(settings, hidden, heads))
    settings.require("attention.value_length", head_size, head_size)
    rotated = settings.size("rope.dimension_count", head_size)
    frequencies = _frequencies(settings.number("rope.freq_base", 10000.0), rotated)
    scaling = settings.values.get("rope.scaling.type", "none")
    if scaling == "linear":
        frequencies /= settings.number("rope.scaling.factor")
    elif scaling != "none":
        raise FileFormatError(f"{files.path}: rope.scaling.type {scaling!r} is not supported")
    if "rope_freqs.weight" in files.names:
        frequencies /= _factors(files, len(frequencies))
    return Decoder(
        names=GGUF_NAMES,
        hidden=hidden,
        layers=settings.size("block_count"),
        heads=heads,
        kv_heads=settings.size("attention.head_count_kv", heads),
        head_size=head_size,
        intermediate=settings.size("feed_forward_length"),
        vocabulary=_rows(files, "token_embd.weight"),
        context=settings.size("context_length"),
        eps=settings.number("attention.layer_norm_rms_epsilon"),
        frequencies=tuple(frequencies.tolist()),
        # llama.cpp's converter permutes the rows of q and k for this.
        rotation="interleaved",
        is_tied="output.weight" not in files.names,
    )


def _from_hugging_face(files: Weights) -> Decoder:
    settings = Settings(f"{files.path}/config.json", files.metadata)
    settings.require("hidden_act", "silu", "silu")
    heads, hidden = settings.size("num_attention_heads"), settings.size("hidden_size")
    head_size = settings.size("head_dim", _head_size(settings, hidden, heads))
    # transformers 5 keeps both settings of the rotation in one object.
    rope = files.metadata.get("rope_parameters") or files.metadata.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise FileFormatError(f"{settings.where}: rope_parameters must be an object, got {rope!r}")
    rope = Settings(settings.where, rope)
    base = rope.number("rope_theta", settings.number("rope_theta", 10000.0))
    frequencies = _scaled(rope, _frequencies(base, head_size))
    return Decoder(
        names=HUGGING_FACE_NAMES,
        hidden=hidden,
        layers=settings.size("num_hidden_layers"),
        heads=heads,
        kv_heads=settings.size("num_key_value_heads", heads),
        head_size=head_size,
        intermediate=settings.size("intermediate_size"),
        vocabulary=settings.size("vocab_size", _rows(files, "model.embed_tokens.weight")),
        context=settings.size("max_position_embeddings", 2048),
        eps=settings.number("rms_norm_eps", 1e-6),
        frequencies=tuple(frequencies.tolist()),
        rotation="halves",
        # A head that is missing though the file promises one is an error.
        is_tied=settings.values.get("tie_word_embeddings", False) is True
        and "lm_head.weight" not in files.names,
    )


def _head_size(settings: Settings, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise FileFormatError(
            f"{settings.where}: {heads} heads do not divide a hidden size of {hidden}"
        )
    return hidden // heads


def _frequencies(base: float, size: int) -> Array:
    return base ** (-np.arange(0, size - size % 2, 2) / size)


def _scaled(rope: Settings, frequencies: Array) -> Array:
    """Return frequencies scaled as ``rope_parameters`` says."""
    kind = rope.values.get("rope_type", rope.values.get("type", "default"))
    if kind == "default":
        return frequencies
    if kind == "linear":
        return frequencies / rope.number("factor")
    if kind != "llama3":
        raise FileFormatError(f"{rope.where}: the rope type {kind!r} is not supported")
    # Long waves are slowed down by the factor, short ones not, and those between in part.
    factor, low, high = map(rope.number, ("factor", "low_freq_factor", "high_freq_factor"))
    if high <= low:
        raise FileFormatError(
            f"{rope.where}: high_freq_factor must be larger than low_freq_factor, {low}, got {high}"
        )
    turns = rope.size("original_max_position_embeddings") * frequencies / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return frequencies * (smooth + (1 - smooth) / factor)


def _factors(files: Weights, expected: int) -> Array:
    tensor = files.tensor("rope_freqs.weight")
    if tensor.shape != (expected,):
        raise FileFormatError(
            f"{tensor.file}: tensor 'rope_freqs.weight' has shape {tensor.shape}, expected "
            f"{(expected,)}"
        )
    factors = tensor.values(np.float64)
    if not np.all(np.isfinite(factors) & (factors > 0)):
        raise FileFormatError(
            f"{tensor.file}: tensor 'rope_freqs.weight' must hold positive numbers"
        )
    return factors


def _rows(files: Weights, name: str) -> int:
    if name not in files.names:
        raise FileFormatError(f"{files.path}: tensor {name!r} is missing")
    return int(files.tensor(name).shape[0])

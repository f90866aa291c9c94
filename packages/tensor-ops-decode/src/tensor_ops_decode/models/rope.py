"""How fast queries and keys rotate, from what a model's file says."""

import math
from dataclasses import dataclass

import numpy as np

from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["Rope", "gguf_rope", "hugging_face_rope", "original_length", "yarn_magnitude"]

_HEAD_SIZE = "head_dim (by default hidden_size // num_attention_heads)"
_MOST_ROTATED = 1 << 16  # far more than any head has
# The kinds whose formulas transformers has for even sizes alone.
_OF_EVEN_SIZES = ("longrope", "su", "yarn", "dynamic")
# Turns in the original length from which YaRN leaves a frequency, and up to which it divides it.
_FAST, _SLOW = 32.0, 1.0


@dataclass(frozen=True)
class Rope:
    """The rotation of a layer.

    Attributes
    ----------
    frequencies : tuple of float
        Radians per position, one for each pair of elements that is rotated.
    factor : float
        The factor of the cosines and sines.
    long_frequencies : tuple of float
        Those of a model whose sequences may be longer than `short_length`, where they differ.
    short_length : int
    stretch : float
        Of a dynamic rotation: how many times as long sequences may become as `short_length`, where
        the base grows with the length; 0 for none.
    query_growth : float
        By how much queries are enlarged behind their rotation, as by `Builder.query_scale` with
        this and with `query_length`; 0 for not at all.
    query_length : int
    """

    frequencies: tuple[float, ...]
    factor: float = 1.0
    long_frequencies: tuple[float, ...] = ()
    short_length: int = 0
    stretch: float = 0.0
    query_growth: float = 0.0
    query_length: int = 0

    def of_length(self, max_seq_length: int) -> tuple[float, ...]:
        """Return the frequencies for sequences up to a length."""
        if max_seq_length <= self.short_length:
            return self.frequencies
        if self.stretch:
            growth = self.stretch * max_seq_length / self.short_length - (self.stretch - 1)
            pairs = range(len(self.frequencies))
            least = growth ** (-1 / max(pairs[-1], 1))
            return tuple(each * least**i for i, each in zip(pairs, self.frequencies, strict=True))
        return self.long_frequencies or self.frequencies


def gguf_rope(
    files: Weights, settings: ModelSettings, head_size: int, *, truncates: bool = True
) -> Rope:
    """Return the rotation that a GGUF file describes.

    `truncates` says whether the pairs between which YaRN changes it are whole, which no file says.
    """
    size = settings.size("rope.dimension_count", head_size)
    _check_pairs(settings, "rope.dimension_count", size, head_size, may_be_odd=False)
    base, factor = settings.number("rope.freq_base", 10000.0), 1.0
    frequencies = _frequencies(base, size)
    kind = settings.values.get("rope.scaling.type", "none")
    if kind == "linear":
        frequencies /= settings.number("rope.scaling.factor")
    elif kind == "yarn":
        frequencies, factor = _gguf_yarn(settings, frequencies, base, size, truncates=truncates)
    elif kind not in ("none", "longrope"):
        raise FileFormatError(f"{settings.where}: rope.scaling.type {kind!r:.80} is not supported")
    if "rope_freqs.weight" in files.names:
        frequencies /= _factors(files, "rope_freqs.weight", len(frequencies))
    if kind != "longrope" and "rope_factors_long.weight" not in files.names:
        return Rope(tuple(frequencies.tolist()), factor)
    short, long = (
        frequencies / _factors(files, f"rope_factors_{which}.weight", len(frequencies))
        for which in ("short", "long")
    )
    return Rope(
        tuple(short.tolist()),
        settings.number("rope.scaling.attn_factor", 1.0),
        tuple(long.tolist()),
        settings.size("rope.scaling.original_context_length"),
    )


def hugging_face_rope(
    settings: ModelSettings,
    rope: ModelSettings,
    head_size: int,
    *,
    base: str = "rope_theta",
    in_part: bool = False,
) -> Rope:
    """Return the rotation that config.json describes, which may be that of some layers only.

    `base` is the setting of the model that is read where `rope` has no base. `in_part` says whether
    models of the family may rotate a part of each head.
    """
    kind = rope.values.get("rope_type", rope.values.get("type", "default"))
    if kind == "proportional":
        return _proportional(rope, head_size)
    part = 1.0
    # transformers reads it for these kinds in every family, and then fails where heads are whole.
    if in_part or kind != "default":
        name = "partial_rotary_factor"
        part = rope.number(name, settings.number(name, 1.0))
        if part > 1 or (part < 1 and not in_part):
            expected = "at most 1" if in_part else "1 in this family of models"
            raise FileFormatError(f"{rope.where}: {name} must be {expected}, got {part}")
    size = int(head_size * part)
    name = "partial_rotary_factor" if 0 < size < head_size else _HEAD_SIZE
    _check_pairs(rope, name, size, head_size, may_be_odd=kind not in _OF_EVEN_SIZES)
    name = "rope_theta"
    has_base = rope.values.get(name) is not None
    theta = rope.number(name) if has_base else settings.number(base)
    frequencies = _frequencies(theta, size)
    if kind in ("longrope", "su"):
        return _longrope(settings, rope, frequencies)
    if kind == "yarn":
        return _yarn(settings, rope, frequencies, theta, size)
    if kind == "dynamic":
        context = settings.size("max_position_embeddings")
        stretch = rope.number("factor")
        return Rope(tuple(frequencies.tolist()), short_length=context, stretch=stretch)
    if kind == "linear":
        frequencies = frequencies / rope.number("factor")
    elif kind == "llama3":
        frequencies = _llama3(settings, rope, frequencies)
    elif kind != "default":
        raise FileFormatError(f"{rope.where}: the rope type {kind!r:.80} is not supported")
    return Rope(tuple(frequencies.tolist()))


def original_length(settings: ModelSettings, rope: ModelSettings) -> int:
    """Return the longest sequence of the model before its rotation was changed for longer ones."""
    name = "original_max_position_embeddings"
    if settings.values.get(name) is not None:
        return settings.size(name)
    return rope.size(name, settings.size("max_position_embeddings"))


def _check_pairs(
    settings: ModelSettings, name: str, size: int, head_size: int, *, may_be_odd: bool
) -> None:
    """Raise a FileFormatError unless the rotated elements fit in the head as pairs.

    The key `name` gives their number. An odd one may mean one element more, as in transformers.
    """
    most = min(head_size, _MOST_ROTATED)
    if most < 2 or size + size % 2 > most or (size % 2 and not may_be_odd):
        raise FileFormatError(
            f"{settings.where}: {name}: {size} of the {head_size} elements of a head rotate, in "
            f"pairs; expected an even number up to {most}, of at least 2"
        )


def _frequencies(base: float, size: int) -> Array:
    """Return one for each pair; of an odd size the last pair has an element more."""
    return base ** (-np.arange(0, size, 2) / max(size, 1))


def _proportional(rope: ModelSettings, head_size: int) -> Rope:
    """Return frequencies of whole heads, of which only the first pairs rotate."""
    _check_pairs(rope, _HEAD_SIZE, head_size, head_size, may_be_odd=False)
    name = "partial_rotary_factor"
    part = rope.number(name, 1.0)
    if part > 1:
        raise FileFormatError(f"{rope.where}: {name} must be at most 1, got {part}")
    frequencies = _frequencies(rope.number("rope_theta"), head_size) / rope.number("factor", 1.0)
    frequencies[int(part * head_size // 2) :] = 0
    return Rope(tuple(frequencies.tolist()))


def _llama3(settings: ModelSettings, rope: ModelSettings, frequencies: Array) -> Array:
    # Long waves are slowed down by the factor, short ones not, and those between in part.
    factor, low, high = map(rope.number, ("factor", "low_freq_factor", "high_freq_factor"))
    if high <= low:
        raise FileFormatError(
            f"{rope.where}: high_freq_factor must be larger than low_freq_factor, {low}, got {high}"
        )
    turns = original_length(settings, rope) * frequencies / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return frequencies * (smooth + (1 - smooth) / factor)


def _longrope(settings: ModelSettings, rope: ModelSettings, frequencies: Array) -> Rope:
    short, long = (
        frequencies / rope.numbers(name, len(frequencies))
        for name in ("short_factor", "long_factor")
    )
    length = original_length(settings, rope)
    stretch = rope.number("factor", settings.size("max_position_embeddings") / length)
    # As the paper has it, what is attended to from farther away is made as sharp as before.
    factor = math.sqrt(1 + math.log(max(stretch, 1)) / math.log(max(length, 2)))
    factor = rope.number("attention_factor", factor)
    return Rope(tuple(short.tolist()), factor, tuple(long.tolist()), length)


def _yarn(
    settings: ModelSettings, rope: ModelSettings, frequencies: Array, base: float, size: int
) -> Rope:
    original = original_length(settings, rope)
    ratio = settings.size("max_position_embeddings") / original
    factor = rope.number("factor", ratio if "factor" in rope.values else None)  # if it is null
    fast, slow = rope.number_or_none("beta_fast", 0.0), rope.number_or_none("beta_slow", 0.0)
    mscales = rope.number_or_none("mscale", 0.0), rope.number_or_none("mscale_all_dim", 0.0)
    magnitude = yarn_magnitude(factor)
    if all(mscales):
        magnitude = yarn_magnitude(factor, mscales[0]) / yarn_magnitude(factor, mscales[1])
    pairs = _pairs_between(rope, original, (fast or _FAST, slow or _SLOW), base, size)
    if rope.values.get("truncate", True):
        pairs = np.floor(pairs[0]), np.ceil(pairs[1])
    divided = _interpolated(frequencies, factor, pairs, size)
    return Rope(tuple(divided.tolist()), rope.number("attention_factor", magnitude))


def _gguf_yarn(
    settings: ModelSettings, frequencies: Array, base: float, size: int, *, truncates: bool
) -> tuple[Array, float]:
    """Return the frequencies of YaRN, and the factor of cosines and sines."""
    settings.require("rope.scaling.yarn_ext_factor", 1.0)
    name = "rope.scaling.original_context_length"
    original = settings.size(name, settings.size("context_length"))
    factor = settings.number("rope.scaling.factor")
    fast = settings.number("rope.scaling.yarn_beta_fast", _FAST)
    slow = settings.number("rope.scaling.yarn_beta_slow", _SLOW)
    pairs = _pairs_between(settings, original, (fast, slow), base, size)
    if truncates:
        pairs = np.floor(pairs[0]), np.ceil(pairs[1])
    magnitude = settings.number("rope.scaling.yarn_attn_factor", yarn_magnitude(factor))
    if in_all := settings.number_or_none("rope.scaling.yarn_log_multiplier", 0.0):
        magnitude = yarn_magnitude(factor) / yarn_magnitude(factor, in_all)
    magnitude *= settings.number("rope.scaling.attn_factor", 1.0)
    return _interpolated(frequencies, factor, pairs, size), magnitude


def _pairs_between(
    settings: ModelSettings, length: int, turns: tuple[float, float], base: float, size: int
) -> tuple[float, float]:
    """Return the numbers, as fractions, of the pairs that turn so often in a length."""
    if base == 1:
        raise FileFormatError(f"{settings.where}: the base of a rotation by YaRN must not be 1")
    inverse = (length / (2 * math.pi * each) for each in turns)
    low, high = (size * math.log(each) / (2 * math.log(base)) for each in inverse)
    return low, high


def _interpolated(
    frequencies: Array, factor: float, pairs: tuple[float, float], size: int
) -> Array:
    """Return frequencies divided by a factor: those before two pairs not, and between in part."""
    low, high = max(pairs[0], 0), min(pairs[1], size - 1)
    part = (np.arange(size // 2) - low) / (high - low if high != low else 1e-3)
    part = np.clip(part, 0, 1)
    return frequencies * (part / factor + (1 - part))


def yarn_magnitude(factor: float, scale: float = 1.0) -> float:
    """Return by how much YaRN enlarges queries and keys of sequences so many times as long."""
    return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0


def _factors(files: Weights, name: str, expected: int) -> Array:
    if name not in files.names:
        raise FileFormatError(f"{files.path}: tensor {name!r} is missing")
    tensor = files.tensor(name)
    if tensor.shape != (expected,):
        raise FileFormatError(
            f"{tensor.file}: tensor {name!r} has shape {tensor.shape}, expected {(expected,)}"
        )
    factors = tensor.values(np.float64)
    if not np.all(np.isfinite(factors) & (factors > 0)):
        raise FileFormatError(f"{tensor.file}: tensor {name!r} must hold positive numbers")
    return factors

"""q4_0, q4_1, q4_zp, q5_0, q5_1, q8_0 and f8_e4m3: numbers of columns that share a scale."""

import numpy as np

from tensor_ops_decode.weights.formats.bits import Bytes, Values, as_half, f16, inverse, nibbles

__all__ = [
    "centred",
    "f8_e4m3",
    "offset",
    "q8_0",
    "to_centred",
    "to_offset",
    "to_q8_0",
    "with_zero_point",
]


def centred(blocks: Bytes, bits: int) -> Values:
    """Return the values of blocks as `to_centred` makes them."""
    q = _integers(blocks[:, 2:], bits).view(np.int8)
    return f16(blocks[:, :2]) * (q - np.int8(1 << bits - 1))


def offset(blocks: Bytes, bits: int) -> Values:
    """Return the values of blocks as `to_offset` makes them."""
    return f16(blocks[:, :2]) * _integers(blocks[:, 4:], bits) + f16(blocks[:, 2:4])


def with_zero_point(blocks: Bytes) -> Values:
    """Return values of q4_zp: a scale, the integer that is zero, and integers of 4 bits."""
    return f16(blocks[:, :2]) * (nibbles(blocks[:, 3:]).astype(np.int16) - blocks[:, 2:3])


def f8_e4m3(blocks: Bytes) -> Values:
    """Return values of f8_e4m3: a scale in float32, and numbers of 8 bits.

    The fields of a number are those of float32 in other places, with a bias that is 120 less. Its
    NaN is 480 here.
    """
    bits = (blocks[:, 4:].astype(np.uint32) << 24).view(np.int32) >> 4 & np.int32(-0x78100000)
    scale: Values = blocks[:, :4].view("<f4").astype(np.float32, copy=False)
    return bits.view(np.float32) * np.float32(2.0**120) * scale


def q8_0(blocks: Bytes) -> Values:
    """Return the values of blocks of signed bytes."""
    return blocks[:, 2:].view(np.int8) * f16(blocks[:, :2])


def to_q8_0(values: Values) -> Bytes:
    """Return blocks of a scale and signed bytes."""
    scale: Values = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    scaled = values * inverse(scale)
    # Halves are rounded away from zero.
    whole = np.floor(np.abs(scaled))
    q = np.sign(scaled) * (whole + np.floor(2 * (np.abs(scaled) - whole)))
    return np.concatenate([as_half(scale), q.astype(np.int8).view(np.uint8)], axis=1)


def to_centred(values: Values, bits: int) -> Bytes:
    """Return blocks of a scale and integers of so many bits, half of which are negative."""
    half = 1 << bits - 1
    largest = np.abs(values).argmax(axis=1, keepdims=True)
    scale = np.take_along_axis(values, largest, axis=1) / np.float32(-half)
    q = np.trunc(values * inverse(scale) + np.float32(half + 0.5)).astype(np.uint8)
    return np.concatenate([as_half(scale), *_packed(q.clip(0, 2 * half - 1), bits)], axis=1)


def to_offset(values: Values, bits: int) -> Bytes:
    """Return blocks of a scale, the least value, and integers of so many bits above it."""
    most = (1 << bits) - 1
    least = values.min(axis=1, keepdims=True)
    scale = (values.max(axis=1, keepdims=True) - least) / np.float32(most)
    q = np.trunc((values - least) * inverse(scale) + np.float32(0.5)).astype(np.uint8)
    packed = _packed(q.clip(0, most), bits)
    return np.concatenate([as_half(scale), as_half(least), *packed], axis=1)


def _packed(q: Bytes, bits: int) -> list[Bytes]:
    """Return what stores integers: their fifth bits if they have these, and their nibbles."""
    high = [np.packbits(q > 15, axis=1, bitorder="little")] if bits == 5 else []
    return [*high, q[:, :16] & np.uint8(15) | q[:, 16:] << np.uint8(4)]


def _integers(packed: Bytes, bits: int) -> Bytes:
    if bits == 4:
        return nibbles(packed)
    high = np.unpackbits(packed[:, :4], axis=1, bitorder="little")
    return nibbles(packed[:, 4:]) | high * np.uint8(16)

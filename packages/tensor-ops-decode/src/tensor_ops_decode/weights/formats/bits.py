"""Reading what the blocks of all types are made of: numbers, and integers of a few bits."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bytes", "Integers", "Values", "as_half", "f16", "inverse", "nibbles", "shifted"]

Bytes = NDArray[np.uint8]
Values = NDArray[np.float32]
Integers = NDArray[np.int8]


def f16(blocks: Bytes) -> Values:
    """Return numbers of half precision."""
    return blocks.view("<f2").astype(np.float32)


def as_half(values: Values) -> Bytes:
    """Return the bytes of numbers in half precision."""
    return values.astype("<f2").view(np.uint8)


def inverse(scale: Values) -> Values:
    """Return what values are multiplied by to be integers; 0 where all are zero."""
    return np.where(scale == 0, np.float32(0), 1 / scale)


def nibbles(packed: Bytes) -> Bytes:
    """Return integers of 4 bits, the low halves of all bytes before the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def shifted(packed: Bytes, bits: int) -> Bytes:
    """Return integers of so many bits, the lowest ones of all bytes first, and so on."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return packed[:, None, :] >> shifts & np.uint8((1 << bits) - 1)

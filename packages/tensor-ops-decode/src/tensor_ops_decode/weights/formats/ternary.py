"""tq1_0 and tq2_0: numbers that are -1, 0 or 1, of which 256 share a scale."""

import numpy as np

from tensor_ops_decode.weights.formats.bits import Bytes, Values, f16, shifted

__all__ = ["tq1_0", "tq2_0"]

_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]


def tq1_0(blocks: Bytes) -> Values:
    """Return values of tq1_0: a byte holds five digits to the base 3 as a fraction of 256."""
    parts = blocks[:, :32], blocks[:, 32:48], blocks[:, 48:52]
    powers = _POWERS, _POWERS, _POWERS[:4]
    digits = [
        (part[:, None] * each).reshape(len(blocks), -1)
        for part, each in zip(parts, powers, strict=True)
    ]
    q = (np.concatenate(digits, axis=1).astype(np.uint16) * 3 >> 8).astype(np.int8) - np.int8(1)
    return f16(blocks[:, 52:]) * q


def tq2_0(blocks: Bytes) -> Values:
    """Return values of tq2_0: integers of 2 bits, less 1."""
    q = shifted(blocks[:, :64].reshape(-1, 32), 2).reshape(-1, 256)
    return f16(blocks[:, 64:]) * (q.view(np.int8) - np.int8(1))

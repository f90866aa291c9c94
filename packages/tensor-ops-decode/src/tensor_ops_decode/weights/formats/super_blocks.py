"""q2_K to q6_K: 256 columns share numbers that small integers of 16 or 32 of them multiply."""

import numpy as np

from tensor_ops_decode.weights.formats.bits import Bytes, Integers, Values, f16, nibbles, shifted

__all__ = ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k"]


def q2_k(blocks: Bytes) -> Values:
    """Return values of q2_K: each 16 columns have integers of 4 bits, one a minimum's."""
    scales: Values = f16(blocks[:, 80:82]) * (blocks[:, :16] & 15)
    minimums: Values = f16(blocks[:, 82:]) * (blocks[:, :16] >> 4)
    q = shifted(blocks[:, 16:80].reshape(-1, 32), 2).reshape(-1, 16, 16)
    return (scales[:, :, None] * q - minimums[:, :, None]).reshape(-1, 256)


def q3_k(blocks: Bytes) -> Values:
    """Return values of q3_K: each 16 columns have a signed integer of 6 bits."""
    low = nibbles(blocks[:, 96:104])
    high = shifted(blocks[:, 104:108], 2).reshape(-1, 16)
    scales: Values = f16(blocks[:, 108:]) * ((low | high << 4).view(np.int8) - np.int8(32))
    low = shifted(blocks[:, 32:96].reshape(-1, 32), 2).reshape(-1, 8, 32)
    q: Integers = (low | shifted(blocks[:, :32], 1) << 2).view(np.int8) - np.int8(4)
    return (scales[:, :, None] * q.reshape(-1, 16, 16)).reshape(-1, 256)


def q4_k(blocks: Bytes) -> Values:
    """Return values of q4_K."""
    scales, minimums = _scales_and_minimums(blocks)
    q = nibbles(blocks[:, 16:].reshape(-1, 32)).reshape(-1, 8, 32)
    return (scales * q - minimums).reshape(-1, 256)


def q5_k(blocks: Bytes) -> Values:
    """Return values of q5_K, whose fifth bits are apart."""
    scales, minimums = _scales_and_minimums(blocks)
    q = nibbles(blocks[:, 48:].reshape(-1, 32)).reshape(-1, 8, 32)
    return (scales * (q | shifted(blocks[:, 16:48], 1) << 4) - minimums).reshape(-1, 256)


def q6_k(blocks: Bytes) -> Values:
    """Return values of q6_K: each 16 columns have a signed byte."""
    scales = f16(blocks[:, 208:]) * blocks[:, 192:208].view(np.int8)
    low = nibbles(blocks[:, :128].reshape(-1, 64)).reshape(-1, 8, 32)
    high = shifted(blocks[:, 128:192].reshape(-1, 32), 2).reshape(-1, 8, 32)
    q: Integers = (low | high << 4).view(np.int8) - np.int8(32)
    return (scales[:, :, None] * q.reshape(-1, 16, 16)).reshape(-1, 256)


def _scales_and_minimums(blocks: Bytes) -> tuple[Values, Values]:
    # Each 32 columns have an integer of 6 bits for either, and 256 what multiplies it. The upper
    # two bits of the last four integers are beside the first four.
    first, second, last = (blocks[:, start : start + 4] for start in (4, 8, 12))
    scales = np.concatenate([first & 63, last & 15 | first >> 2 & 48], axis=1)
    minimums = np.concatenate([second & 63, last >> 4 | second >> 2 & 48], axis=1)
    return (
        (f16(blocks[:, :2]) * scales)[:, :, None],
        (f16(blocks[:, 2:4]) * minimums)[:, :, None],
    )

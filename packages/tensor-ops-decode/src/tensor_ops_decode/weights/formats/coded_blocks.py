"""mxfp4, nvfp4, iq4_nl and iq4_xs: codes of 4 bits, each of which stands for one of 16 integers."""

import numpy as np

from tensor_ops_decode.weights.formats.bits import Bytes, Values, f16, nibbles, shifted

__all__ = ["iq4_nl", "iq4_xs", "mxfp4", "nvfp4", "to_mxfp4"]

# Twice the numbers of FP4 (E2M1).
_FP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
_NONLINEAR = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)


def mxfp4(blocks: Bytes) -> Values:
    """Return values of the OCP's microscaling format: 32 columns share a power of two."""
    return _half_of_e8m0(blocks[:, :1]) * _FP4[nibbles(blocks[:, 1:])]


def to_mxfp4(values: Values) -> Bytes:
    """Return blocks of mxfp4, each value the nearest one there is."""
    largest = np.abs(values).max(axis=1, keepdims=True)
    exponent = np.where(largest > 0, np.floor(np.log2(largest)) + 125, 0).astype(np.uint8)
    numbers = _half_of_e8m0(exponent) * _FP4.astype(np.float32)
    codes = np.abs(numbers[:, None] - values[:, :, None]).argmin(axis=2).astype(np.uint8)
    blocks = np.concatenate([exponent, codes[:, :16] | codes[:, 16:] << 4], axis=1)
    # The format has no NaN; the largest number with the largest exponent is infinite.
    blocks[~np.isfinite(largest[:, 0])] = [255] + [0x77] * 16
    return blocks


def nvfp4(blocks: Bytes) -> Values:
    """Return values of NVIDIA's format: 16 columns share a scale of E4M3, less its sign."""
    scales = _HALVES_OF_E4M3[blocks[:, :4]]
    values = _FP4[nibbles(blocks[:, 4:].reshape(-1, 8))].reshape(-1, 4, 16)
    return (scales[:, :, None] * values).reshape(-1, 64)


def iq4_nl(blocks: Bytes) -> Values:
    """Return values of iq4_nl: 32 columns share a scale."""
    return f16(blocks[:, :2]) * _NONLINEAR[nibbles(blocks[:, 2:])]


def iq4_xs(blocks: Bytes) -> Values:
    """Return values of iq4_xs: 32 columns have a signed integer of 6 bits."""
    low = shifted(blocks[:, 4:8].reshape(-1, 1), 4).reshape(-1, 8)
    high = shifted(blocks[:, 2:4].reshape(-1, 1), 2).reshape(-1, 8)
    scales: Values = f16(blocks[:, :2]) * ((low | high << 4).view(np.int8) - np.int8(32))
    values = _NONLINEAR[nibbles(blocks[:, 8:].reshape(-1, 16))].reshape(-1, 8, 32)
    return (scales[:, :, None] * values).reshape(-1, 256)


def _half_of_e8m0(exponents: Bytes) -> Values:
    wide = exponents.astype(np.uint32)
    # The two least are subnormal numbers of float32.
    return np.where(wide < 2, wide + 1 << 21, wide - 1 << 23).astype(np.uint32).view(np.float32)


def _halves_of_e4m3() -> Values:
    """Return half of each number of E4M3, as GGML has it: without a sign, and 0 for NaN."""
    # The exponent's bias is 7, that of half precision 15.
    bits = (np.arange(256, dtype="<u2") & 127) << 7
    halves: Values = f16(bits.view(np.uint8)) * np.float32(128)
    halves[127] = 0
    return halves


_HALVES_OF_E4M3 = _halves_of_e4m3()

"""Random matrices of models.

They have blocks of random bytes, with scales that make values of about the size of trained ones:
gguf cannot quantize the K formats, and how fast a matrix is read depends on no value.
"""

import math
from collections.abc import Callable

import gguf
import numpy as np

__all__ = ["BLOCKS", "POSITIONS", "WORDS", "bfloat16", "random_matrix"]

WORDS, POSITIONS = 32000, 8192


def _blocks_q4_0(rows: np.ndarray) -> None:
    rows[:, :2] = _half(0.0045)


def _blocks_q8_0(rows: np.ndarray) -> None:
    rows[:, :2] = _half(0.00027)


def _blocks_q4_k(rows: np.ndarray) -> None:
    rows[:, :2], rows[:, 2:4] = _half(1e-4), _half(7.5e-4)


def _blocks_q6_k(rows: np.ndarray) -> None:
    scales = rows[:, 192:208]
    scales[:] = (scales & 31) - 16
    rows[:, 208:] = _half(1.2e-4)


def _blocks_iq4_xs(rows: np.ndarray) -> None:
    rows[:, :2] = _half(1.5e-5)


def _blocks_mxfp4(rows: np.ndarray) -> None:
    rows[:, 0] = 120


# Scales, which make blocks of random bytes valid, and where each format has them.
BLOCKS: dict[str, Callable[[np.ndarray], None]] = {
    "Q4_0": _blocks_q4_0,
    "Q8_0": _blocks_q8_0,
    "Q4_K": _blocks_q4_k,
    "Q6_K": _blocks_q6_k,
    "IQ4_XS": _blocks_iq4_xs,
    "MXFP4": _blocks_mxfp4,
}


def random_matrix(draw: np.random.Generator, *shape: int, kind: str) -> np.ndarray:
    """Return a random matrix, or a stack, as a file has it: float32, or the bytes of its rows."""
    if kind not in BLOCKS:
        values = draw.standard_normal(shape, dtype=np.float32)
        values *= np.float32(0.02)
        return values if kind == "F32" else bfloat16(values)
    numbers, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = draw.integers(0, 256, (math.prod(shape) // numbers, size), dtype=np.uint8)
    BLOCKS[kind](blocks)
    return blocks.reshape(*shape[:-1], -1)


def _half(value: float) -> np.ndarray:
    return np.array([value], np.float16).view(np.uint8)


def bfloat16(values: np.ndarray) -> np.ndarray:
    """Return the bytes of numbers in bfloat16."""
    return gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16)

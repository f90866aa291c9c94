"""The types of stored tensors: how many bytes a row takes, and what the bytes mean.

A type stores each row as blocks of ``block_size`` values in ``block_bytes`` bytes. The block types
are GGML's, with GGML's arithmetic: `Format.dequantize` returns what ggml computes, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["FORMATS", "GGML_TYPES", "Format"]

Bytes = NDArray[np.uint8]
Values = NDArray[np.float32]

_BYTES_AT_ONCE = 1 << 18  # so that the temporaries of a piece stay in the cache


@dataclass(frozen=True)
class Format:
    """How a tensor's values are stored.

    A program calls it by its `name`, such as ``"q8_0"``, and a GGUF file by its `ggml_type`. The
    float types have blocks of one value.

    `dequantize_blocks` maps blocks, one a row of uint8, to their values in float32; it is None for
    a type that is known, and cannot be computed with. `quantize_blocks` is its inverse, and None
    for a type that is only read.
    """

    name: str
    ggml_type: int
    block_size: int
    block_bytes: int
    dequantize_blocks: Callable[[Bytes], Values] | None = None
    quantize_blocks: Callable[[Values], Bytes] | None = None

    @property
    def is_float(self) -> bool:
        """Whether each value is a floating-point number of its own, and supported."""
        return self.block_size == 1 and self.is_supported

    @property
    def is_supported(self) -> bool:
        """Whether weights of this type can be computed with."""
        return self.dequantize_blocks is not None

    def row_bytes(self, columns: int) -> int:
        """Return how many bytes a row of so many values takes.

        Raises ValueError if the row is not made of whole blocks.
        """
        if columns % self.block_size:
            raise ValueError(
                f"a row of {columns} values cannot be stored as {self.name}: it takes a multiple "
                f"of {self.block_size}"
            )
        return columns // self.block_size * self.block_bytes

    def dequantize(self, rows: Bytes, columns: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """Return the values of stored rows, which are uint8 ``[..., row_bytes(columns)]``.

        Values are computed in float32, and then converted. Raises ValueError if the rows have
        another length or dtype, or the type is not supported.
        """
        if self.dequantize_blocks is None:
            raise ValueError(
                f"tensors of type {self.name} are not supported; supported are "
                + ", ".join(FORMATS)
            )
        length = self.row_bytes(columns)
        if rows.dtype != np.uint8 or rows.ndim == 0 or rows.shape[-1] != length:
            raise ValueError(
                f"rows of {columns} values of {self.name} are uint8 of shape (..., {length}), got "
                f"{rows.dtype} of shape {rows.shape}"
            )
        values = np.empty((*rows.shape[:-1], columns), dtype)
        blocks = np.ascontiguousarray(rows).reshape(-1, self.block_bytes)
        output = values.reshape(-1, self.block_size)
        step = _BYTES_AT_ONCE // self.block_bytes
        with np.errstate(all="ignore"):  # a damaged scale is infinite or NaN, and so are its values
            for start in range(0, len(blocks), step):
                piece = slice(start, start + step)
                output[piece] = self.dequantize_blocks(blocks[piece])
        return values

    def quantize(self, rows: Bytes, form: Format, columns: int) -> Bytes:
        """Return stored rows of another format in this one, as gguf.quants.quantize does.

        Raises ValueError if this type is only read, or a row of it cannot have so many columns.
        """
        if self.quantize_blocks is None:
            names = ", ".join(name for name, each in FORMATS.items() if each.quantize_blocks)
            raise ValueError(f"nothing can be quantized to {self.name}; expected one of {names}")
        quantized = np.empty((len(rows), self.row_bytes(columns)), np.uint8)
        step = max(1, _BYTES_AT_ONCE // rows.shape[1])
        with np.errstate(all="ignore"):  # a block with a value that is not finite has none that is
            for start in range(0, len(rows), step):
                piece = slice(start, start + step)
                values = form.dequantize(rows[piece], columns).reshape(-1, self.block_size)
                quantized[piece] = self.quantize_blocks(values).reshape(-1, quantized.shape[1])
        return quantized


def _f32(blocks: Bytes) -> Values:
    return blocks.view("<f4").astype(np.float32, copy=False)


def _f16(blocks: Bytes) -> Values:
    return blocks.view("<f2").astype(np.float32)


def _bf16(blocks: Bytes) -> Values:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _centred(blocks: Bytes, bits: int) -> Values:
    """Return the values of blocks as `_to_centred` makes them."""
    q = _integers(blocks[:, 2:], bits).view(np.int8)
    return _f16(blocks[:, :2]) * (q - np.int8(1 << bits - 1))


def _offset(blocks: Bytes, bits: int) -> Values:
    """Return the values of blocks as `_to_offset` makes them."""
    return _f16(blocks[:, :2]) * _integers(blocks[:, 4:], bits) + _f16(blocks[:, 2:4])


def _q8_0(blocks: Bytes) -> Values:
    return blocks[:, 2:].view(np.int8) * _f16(blocks[:, :2])


def _q4_k(blocks: Bytes) -> Values:
    scales, minimums = _scales_and_minimums(blocks)
    q = _nibbles(blocks[:, 16:].reshape(-1, 32)).reshape(-1, 8, 32)
    return (scales * q - minimums).reshape(-1, 256)


def _q5_k(blocks: Bytes) -> Values:
    scales, minimums = _scales_and_minimums(blocks)
    q = _nibbles(blocks[:, 48:].reshape(-1, 32)).reshape(-1, 8, 32)
    # Bit i of byte j is the fifth bit of column 32 i + j.
    high = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    return (scales * (q | high << 4) - minimums).reshape(-1, 256)


def _q6_k(blocks: Bytes) -> Values:
    scales = _f16(blocks[:, 208:]) * blocks[:, 192:208].view(np.int8)
    low = _nibbles(blocks[:, :128].reshape(-1, 64)).reshape(-1, 2, 4, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    high = high >> np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    q: NDArray[np.int8] = (low | (high & 3) << 4).view(np.int8) - np.int8(32)
    return (scales[:, :, None] * q.reshape(-1, 16, 16)).reshape(-1, 256)


def _to_q8_0(values: Values) -> Bytes:
    scale: Values = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    scaled = values * _inverse(scale)
    # Halves are rounded away from zero.
    whole = np.floor(np.abs(scaled))
    q = np.sign(scaled) * (whole + np.floor(2 * (np.abs(scaled) - whole)))
    return np.concatenate([_half(scale), q.astype(np.int8).view(np.uint8)], axis=1)


def _to_centred(values: Values, bits: int) -> Bytes:
    """Return blocks of a scale and integers of so many bits, half of which are negative."""
    half = 1 << bits - 1
    largest = np.abs(values).argmax(axis=1, keepdims=True)
    scale = np.take_along_axis(values, largest, axis=1) / np.float32(-half)
    q = np.trunc(values * _inverse(scale) + np.float32(half + 0.5)).astype(np.uint8)
    return np.concatenate([_half(scale), *_packed(q.clip(0, 2 * half - 1), bits)], axis=1)


def _to_offset(values: Values, bits: int) -> Bytes:
    """Return blocks of a scale, the least value, and integers of so many bits above it."""
    most = (1 << bits) - 1
    least = values.min(axis=1, keepdims=True)
    scale = (values.max(axis=1, keepdims=True) - least) / np.float32(most)
    q = np.trunc((values - least) * _inverse(scale) + np.float32(0.5)).astype(np.uint8)
    return np.concatenate([_half(scale), _half(least), *_packed(q.clip(0, most), bits)], axis=1)


def _inverse(scale: Values) -> Values:
    return np.where(scale == 0, np.float32(0), 1 / scale)


def _half(values: Values) -> Bytes:
    return values.astype("<f2").view(np.uint8)


def _nibbles(packed: Bytes) -> Bytes:
    # The low halves of all bytes are the first half of the block.
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _packed(q: Bytes, bits: int) -> list[Bytes]:
    """Return what stores integers: their fifth bits if they have these, and their nibbles."""
    high = [np.packbits(q > 15, axis=1, bitorder="little")] if bits == 5 else []
    return [*high, q[:, :16] & np.uint8(15) | q[:, 16:] << np.uint8(4)]


def _integers(packed: Bytes, bits: int) -> Bytes:
    if bits == 4:
        return _nibbles(packed)
    high = np.unpackbits(packed[:, :4], axis=1, bitorder="little")
    return _nibbles(packed[:, 4:]) | high * np.uint8(16)


def _scales_and_minimums(blocks: Bytes) -> tuple[Values, Values]:
    # Each 32 columns have an integer of 6 bits for either, and 256 what multiplies it. The upper
    # two bits of the last four integers are beside the first four.
    first, second, last = (blocks[:, start : start + 4] for start in (4, 8, 12))
    scales = np.concatenate([first & 63, last & 15 | first >> 2 & 48], axis=1)
    minimums = np.concatenate([second & 63, last >> 4 | second >> 2 & 48], axis=1)
    return (
        (_f16(blocks[:, :2]) * scales)[:, :, None],
        (_f16(blocks[:, 2:4]) * minimums)[:, :, None],
    )


_ALL = (
    Format("f32", 0, 1, 4, _f32),
    Format("f16", 1, 1, 2, _f16),
    Format("q4_0", 2, 32, 18, partial(_centred, bits=4), partial(_to_centred, bits=4)),
    Format("q4_1", 3, 32, 20, partial(_offset, bits=4), partial(_to_offset, bits=4)),
    Format("q5_0", 6, 32, 22, partial(_centred, bits=5), partial(_to_centred, bits=5)),
    Format("q5_1", 7, 32, 24, partial(_offset, bits=5), partial(_to_offset, bits=5)),
    Format("q8_0", 8, 32, 34, _q8_0, _to_q8_0),
    Format("q8_1", 9, 32, 40),
    Format("q2_K", 10, 256, 84),
    Format("q3_K", 11, 256, 110),
    Format("q4_K", 12, 256, 144, _q4_k),
    Format("q5_K", 13, 256, 176, _q5_k),
    Format("q6_K", 14, 256, 210, _q6_k),
    Format("q8_K", 15, 256, 292),
    Format("iq2_xxs", 16, 256, 66),
    Format("iq2_xs", 17, 256, 74),
    Format("iq3_xxs", 18, 256, 98),
    Format("iq1_s", 19, 256, 50),
    Format("iq4_nl", 20, 32, 18),
    Format("iq3_s", 21, 256, 110),
    Format("iq2_s", 22, 256, 82),
    Format("iq4_xs", 23, 256, 136),
    Format("i8", 24, 1, 1),
    Format("i16", 25, 1, 2),
    Format("i32", 26, 1, 4),
    Format("i64", 27, 1, 8),
    Format("f64", 28, 1, 8),
    Format("iq1_m", 29, 256, 56),
    Format("bf16", 30, 1, 2, _bf16),
    Format("tq1_0", 34, 256, 54),
    Format("tq2_0", 35, 256, 66),
    Format("mxfp4", 39, 32, 17),
    Format("nvfp4", 40, 64, 36),
    Format("q1_0", 41, 128, 18),
)
GGML_TYPES = {form.ggml_type: form for form in _ALL}  # those that GGUF files may have
FORMATS = {form.name: form for form in _ALL if form.is_supported}  # those that weights may have

"""The types of stored tensors: how many bytes a row takes, and what the bytes mean.

A type stores each row as blocks of ``block_size`` values in ``block_bytes`` bytes. The block types
of GGUF files are GGML's, with GGML's arithmetic: `Format.dequantize` returns what ggml computes,
bit for bit. Folders of Hugging Face have two further ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tensor_ops_decode.weights.formats.bits import Bytes, Values, f16
from tensor_ops_decode.weights.formats.codebooks import iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs
from tensor_ops_decode.weights.formats.coded_blocks import iq4_nl, iq4_xs, mxfp4, nvfp4, to_mxfp4
from tensor_ops_decode.weights.formats.simple_blocks import (
    centred,
    f8_e4m3,
    offset,
    q8_0,
    to_centred,
    to_offset,
    to_q8_0,
    with_zero_point,
)
from tensor_ops_decode.weights.formats.super_blocks import q2_k, q3_k, q4_k, q5_k, q6_k
from tensor_ops_decode.weights.formats.ternary import tq1_0, tq2_0

__all__ = ["FORMATS", "GGML_TYPES", "Format"]

_BYTES_AT_ONCE = 1 << 18  # so that the temporaries of a piece stay in the cache


@dataclass(frozen=True)
class Format:
    """How a tensor's values are stored.

    A program calls it by its `name`, such as ``"q8_0"``, and a GGUF file by its `ggml_type`, which
    is None for one that GGML has not. The float types have blocks of one value.

    `dequantize_blocks` maps blocks, one a row of uint8, to their values in float32; it is None for
    a type that is known, and cannot be computed with. `quantize_blocks` is its inverse, and None
    for a type that is only read.
    """

    name: str
    ggml_type: int | None
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


def _bf16(blocks: Bytes) -> Values:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


_ALL = (
    Format("f32", 0, 1, 4, _f32),
    Format("f16", 1, 1, 2, f16),
    Format("q4_0", 2, 32, 18, partial(centred, bits=4), partial(to_centred, bits=4)),
    Format("q4_1", 3, 32, 20, partial(offset, bits=4), partial(to_offset, bits=4)),
    Format("q5_0", 6, 32, 22, partial(centred, bits=5), partial(to_centred, bits=5)),
    Format("q5_1", 7, 32, 24, partial(offset, bits=5), partial(to_offset, bits=5)),
    Format("q8_0", 8, 32, 34, q8_0, to_q8_0),
    Format("q8_1", 9, 32, 40),
    Format("q2_K", 10, 256, 84, q2_k),
    Format("q3_K", 11, 256, 110, q3_k),
    Format("q4_K", 12, 256, 144, q4_k),
    Format("q5_K", 13, 256, 176, q5_k),
    Format("q6_K", 14, 256, 210, q6_k),
    Format("q8_K", 15, 256, 292),
    Format("iq2_xxs", 16, 256, 66, iq2_xxs),
    Format("iq2_xs", 17, 256, 74, iq2_xs),
    Format("iq3_xxs", 18, 256, 98, iq3_xxs),
    Format("iq1_s", 19, 256, 50),
    Format("iq4_nl", 20, 32, 18, iq4_nl),
    Format("iq3_s", 21, 256, 110, iq3_s),
    Format("iq2_s", 22, 256, 82, iq2_s),
    Format("iq4_xs", 23, 256, 136, iq4_xs),
    Format("i8", 24, 1, 1),
    Format("i16", 25, 1, 2),
    Format("i32", 26, 1, 4),
    Format("i64", 27, 1, 8),
    Format("f64", 28, 1, 8),
    Format("iq1_m", 29, 256, 56),
    Format("bf16", 30, 1, 2, _bf16),
    Format("tq1_0", 34, 256, 54, tq1_0),
    Format("tq2_0", 35, 256, 66, tq2_0),
    Format("mxfp4", 39, 32, 17, mxfp4, to_mxfp4),
    Format("nvfp4", 40, 64, 36, nvfp4),
    Format("q1_0", 41, 128, 18),
    Format("f8_e4m3", None, 64, 68, f8_e4m3),
    Format("q4_zp", None, 32, 19, with_zero_point),
)
# Those that GGUF files may have.
GGML_TYPES = {form.ggml_type: form for form in _ALL if form.ggml_type is not None}
FORMATS = {form.name: form for form in _ALL if form.is_supported}  # those that weights may have

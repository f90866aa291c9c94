"""Weights of 4 bits as GPTQ and AWQ write them: integers, zero points and scales.

A weight is ``scale * (integer - zero)``. Columns that share a scale and a zero point are a group.
Files have the transposed matrix, with eight integers in a word of 32 bits: eight columns in GPTQ,
eight rows in AWQ. GGML's order of integers is one in which a byte has columns i and 16 + i of 32.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensor_ops_decode.weights.formats import FORMATS, Format
from tensor_ops_decode.weights.joined.joined_tensor import JoinedTensor, integers_of
from tensor_ops_decode.weights.mapped_file import FileFormatError
from tensor_ops_decode.weights.tensor import StoredTensor, TensorHeader, TensorPlace

__all__ = ["checkpoint_format", "tensors_in"]

_WEIGHT, _PARTS, _GROUPS = ".weight", (".qweight", ".qzeros", ".scales"), ".g_idx"
# Weights whose zero points are all 8 are of a smaller type, which has it for all.
_CENTRED, _WITH_ZERO = FORMATS["q4_0"], FORMATS["q4_zp"]
_ROWS_AT_ONCE = 64  # so that the temporaries of a piece stay in the cache

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class _Layout:
    """How a library stores integers.

    `columns` and `rows` are those of a word. `halves` returns words that have 32 columns of some
    rows as bytes ``(rows, blocks, 16)`` in GGML's order. A word of zero points has those of eight
    rows, each in the nibble that `order` says, and `more` is added to it.
    """

    columns: int
    rows: int
    halves: Callable[[NDArray[Any]], Bytes]
    order: tuple[int, ...]
    more: int = 0


def _halves_of_gptq(words: NDArray[Any]) -> Bytes:
    # A byte has two neighbouring columns: 16 columns are eight bytes.
    pairs = np.ascontiguousarray(words.T).view(np.uint64).reshape(words.shape[1], -1, 2)
    first, last = pairs[:, :, :1], pairs[:, :, 1:]
    even = (first & _LOW) | (last & _LOW) << np.uint64(4)
    odd = first >> np.uint64(4) & _LOW | last & ~_LOW
    # Bytes of both in turn.
    made = odd.view(np.uint8).astype("<u2") << 8 | even.view(np.uint8)
    return made.view(np.uint8)


def _halves_of_awq(words: NDArray[Any]) -> Bytes:
    # A byte has two rows of one column: axes are the block, its half, the column, word and byte.
    pairs = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 2, 16, words.shape[1], 4)
    first, last = pairs[:, 0], pairs[:, 1]
    made = np.empty((words.shape[1], 8, len(pairs), 16), np.uint8)
    for rows, halves in ((0, first & 15 | last << 4), (1, first >> 4 | last & 240)):
        made[:, _AWQ_ORDER[rows::2]] = halves.transpose(2, 3, 0, 1)
    return made.reshape(-1, *made.shape[2:])


_LOW = np.uint64(0x0F0F0F0F0F0F0F0F)
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_GPTQ = _Layout(8, 1, _halves_of_gptq, tuple(range(8)))
# Version 1 stores one less than each zero point; all of a word are subtracted at once.
_GPTQ_1 = _Layout(8, 1, _halves_of_gptq, tuple(range(8)), 0x11111111)
_AWQ = _Layout(1, 8, _halves_of_awq, _AWQ_ORDER)


@dataclass(frozen=True)
class _PackedIntegers(JoinedTensor):
    layout: _Layout = _GPTQ
    groups: TensorPlace | None = None

    @functools.cached_property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        integers, zeros, scales = (part.shape for part in self.parts)
        if {len(integers), len(zeros), len(scales)} == {2}:
            columns, rows = integers[0] * self.layout.columns, integers[1] * self.layout.rows
            count = scales[0]
            is_whole = min(count, rows, columns) > 0 and columns % (32 * count) == 0
            if is_whole and scales[1] == rows == 8 * zeros[1] and zeros[0] == count:
                return rows, columns
        raise self.misfit(
            "GPTQ or AWQ",
            "a matrix of 4 bits, and for each group of its columns, in multiples of 32, a zero "
            "point and a scale of each row",
        )

    @functools.cached_property
    def format(self) -> Format:
        """The type that the zero points need."""
        return _CENTRED if np.all(self._zeros() == 8) else _WITH_ZERO

    def header(self) -> TensorHeader:
        shape = self.shape
        if self.groups is not None:
            self._check_groups(self.groups)
        if self.parts[2].format != FORMATS["f16"]:
            self._scales()
        return TensorHeader(self.format.name, shape, self.file.path)

    def open(self) -> StoredTensor:
        self.header()
        rows, columns = self.shape
        form, scales, words = self.format, self._scales(), integers_of(self.parts[0], "<u4")
        of_group = columns // 32 // scales.shape[1]
        made = np.empty((rows, columns // 32, form.block_bytes), np.uint8)
        made[:, :, :2] = scales.repeat(of_group, 1)
        if form is _WITH_ZERO:
            made[:, :, 2] = self._zeros().repeat(of_group, 1)
        step = _ROWS_AT_ONCE // self.layout.rows
        for first in range(0, words.shape[1], step):
            halves = self.layout.halves(words[:, first : first + step])
            start = first * self.layout.rows
            made[start : start + len(halves), :, -16:] = halves
        return self.stored(made.reshape(rows, -1))

    def _zeros(self) -> Bytes:
        """Return the zero point of each row and group."""
        rows, _ = self.shape
        words = integers_of(self.parts[1], "<u4") + np.uint32(self.layout.more)
        nibbles = words.view(np.uint8)[..., None] >> np.array([0, 4], np.uint8) & 15
        of_row = np.empty((len(words), rows // 8, 8), np.uint8)
        of_row[:, :, self.layout.order] = nibbles.reshape(of_row.shape)
        return of_row.reshape(len(words), rows).T

    def _scales(self) -> Bytes:
        """Return the bytes of the scale of each row and group, in half precision."""
        values = self.parts[2].open().values()
        with np.errstate(over="ignore"):
            halves = values.astype("<f2")
        if not np.array_equal(halves, values, equal_nan=True):
            raise FileFormatError(
                f"{self.file.path}: {self.parts[2].what} has scales that half precision has not; "
                "expected scales of type F16"
            )
        return np.ascontiguousarray(halves.T)[..., None].view(np.uint8)

    def _check_groups(self, groups: TensorPlace) -> None:
        """Raise a FileFormatError unless neighbouring columns are a group."""
        _, columns = self.shape
        expected = np.arange(columns) // (columns // self.parts[2].shape[0])
        if groups.shape != (columns,) or not np.array_equal(integers_of(groups, "<i4"), expected):
            raise FileFormatError(
                f"{self.file.path}: {groups.what} has columns of a group in places that are no "
                "neighbours (desc_act), which is not supported; use the GGUF file of the model, or "
                "a folder that was quantized without"
            )


@dataclass(frozen=True)
class _Incomplete(JoinedTensor):
    """Integers without all that they need, or in other types."""

    def header(self) -> TensorHeader:
        names, types = ", ".join(self.names_of_parts), ", ".join(map(_type_of, self.parts))
        raise FileFormatError(
            f"{self.file.path}: {self.name!r} would be of {names} with types {types}; expected "
            f"{', '.join(_PARTS)} of I32, I32 and F16, and {_GROUPS}, if it is there, of I32"
        )

    def open(self) -> StoredTensor:
        self.header()
        raise AssertionError


def _type_of(place: TensorPlace) -> str:
    return place.format.name.upper() if isinstance(place.format, Format) else place.format


def checkpoint_format(quantization: Mapping[str, Any]) -> Any:
    """Return how integers are laid out, in lower case: under one of three names, or "gptq"."""
    names = (
        ("version", "format")
        if quantization.get("quant_method") == "awq"
        else (
            "checkpoint_format",
            "format",
        )
    )
    stated = next((quantization[name] for name in names if quantization.get(name)), None)
    if stated is None:
        return "gemm" if "version" in names else "gptq"
    return stated.lower() if isinstance(stated, str) else stated


def tensors_in(
    tensors: Mapping[str, TensorPlace], quantization: Mapping[str, Any]
) -> Iterator[JoinedTensor]:
    """Return the matrices that have integers, zero points and scales, under their usual names."""
    gptq = _GPTQ if checkpoint_format(quantization) == "gptq_v2" else _GPTQ_1
    layout = _AWQ if quantization.get("quant_method") == "awq" else gptq
    for name in tensors:
        module = name.removesuffix(_PARTS[0])
        if module == name:
            continue
        parts = tuple(tensors[module + end] for end in _PARTS if module + end in tensors)
        groups = tensors.get(module + _GROUPS)
        ignored = () if groups is None else (groups,)
        are_known = len(parts) == 3 and [part.format for part in parts[:2]] == ["I32", "I32"]
        are_known = are_known and isinstance(parts[2].format, Format) and parts[2].format.is_float
        if are_known and (groups is None or groups.format == "I32"):
            yield _PackedIntegers(module + _WEIGHT, parts, ignored, layout, groups)
        else:
            yield _Incomplete(module + _WEIGHT, (*parts, *ignored))

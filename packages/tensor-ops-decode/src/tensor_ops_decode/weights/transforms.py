"""Changes of a tensor on its way from a file to an executor, named in a program."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensor_ops_decode.weights.formats import FORMATS
from tensor_ops_decode.weights.tensor import StoredTensor

__all__ = [
    "CUT_AXES",
    "QUANTIZED_TYPES",
    "TRANSFORMS",
    "apply_transforms",
    "find_transform",
    "is_cut",
    "transformed_shape",
    "type_times",
]

QUANTIZED_TYPES = tuple(name for name, form in FORMATS.items() if form.quantize_blocks)
#: Of which axis a cut keeps a range.
CUT_AXES = {"planes": -3, "rows": -2, "columns": -1}
_QUANTIZE = "quantize:"
_RANGE = re.compile(r"(planes|rows|columns):(\d{1,10}):(\d{1,10})")
_BLOCKS = re.compile(r"row_blocks:(\d{1,10}):(\d{1,10}):(\d{1,10})")
_PLANES = re.compile(r"planes:(\d{1,10})")
_INTERLEAVED = re.compile(r"interleave_rows:(\d{1,10})")
_AMONG = re.compile(r"among_(rows|columns):(\d{1,10}):(\d{1,10})")
_TIMES = re.compile(r"times:(-?\d{1,20}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?)")

Transform: TypeAlias = Callable[[StoredTensor], StoredTensor]


def apply_transforms(tensor: StoredTensor, transforms: Sequence[str]) -> StoredTensor:
    """Return a tensor with transforms applied, in order.

    ``"transpose"`` swaps rows and columns, and ``"flatten"`` makes a vector of all elements.
    ``"row"`` makes a vector of any type the row of a matrix.
    ``"plus_one"`` adds one to each value, in float32, and makes a tensor of type f32.
    ``"even_columns"`` and ``"odd_columns"`` keep every other column. These are for float types.
    ``"even_rows"`` and ``"odd_rows"`` keep every other row of a tensor of any type, and
    ``"row_blocks:n:a:b"`` those from a up to b of every n rows. ``"planes:n"`` makes a matrix of
    any type n matrices of as many rows. ``"dequantize"`` makes a tensor of type f32 of any type.
    ``"neg_exp"`` makes one of type f32 of a float type: -exp of each value, in float32. ``"ones"``
    makes one of as many ones.
    ``"times:x"`` multiplies values of a float type by a number, in float32: the result is of type
    f32, or bf16 as it was where that is exact, because x is a power of two. ``"interleave_rows:n"``
    takes of every n rows one of the first half and one of the second in turn. Of a float type,
    ``"among_columns:a:n"`` makes a matrix of n columns, zero but for these, which begin at a, and
    ``"among_rows:a:n"`` one of n rows.
    ``"quantize:q8_0"`` and the like make one of that type. ``"rows:a:b"`` and ``"columns:a:b"``
    keep those from a up to b, as a slice does, of a tensor of any type; columns are cut between
    blocks only. Of a vector, columns are its elements. ``"planes:a:b"`` keeps matrices of a stack.

    The result has the memory of the tensor given if there are no transforms, or of rows only. It is
    a ValueError if a transform is unknown, or does not apply to this tensor.
    """
    for name in transforms:
        transform = find_transform(name)
        if transform is None:
            raise ValueError(f"transform {name!r} is unknown; expected " + ", ".join(TRANSFORMS))
        if not tensor.format.is_float and (name in _OF_FLOATS or _is_of_floats(name)):
            raise ValueError(
                f"{tensor.file}: tensor {tensor.name!r} is of type {tensor.type}, to which "
                f"{name!r} does not apply; expected f32, f16 or bf16"
            )
        tensor = transform(tensor)
    return tensor


def find_transform(name: str) -> Transform | None:
    """Return the transform of a name, such as ``"rows:0:64"``; None if there is none."""
    if match := _RANGE.fullmatch(name):
        return functools.partial(_cut, match[1], int(match[2]), int(match[3]))
    if match := _BLOCKS.fullmatch(name):
        period, first, end = map(int, match.groups())
        return functools.partial(_row_blocks, name, period, first, end)
    if match := _PLANES.fullmatch(name):
        return functools.partial(_planes, name, int(match[1]))
    if match := _INTERLEAVED.fullmatch(name):
        return functools.partial(_interleave_rows, name, int(match[1]))
    if match := _AMONG.fullmatch(name):
        return functools.partial(_among, name, match[1], int(match[2]), int(match[3]))
    if match := _TIMES.fullmatch(name):
        return functools.partial(_times, float(match[1]))
    return _NAMED.get(name)


def type_times(of: str, factor: float) -> str:
    """Return the type that a tensor has after ``"times:x"``."""
    is_exact = of == "bf16" and abs(math.frexp(factor)[0]) == 0.5
    return of if is_exact else "f32"


def is_cut(name: str) -> bool:
    """Return whether a transform keeps some planes, rows or columns, of a tensor of any type."""
    return _RANGE.fullmatch(name) is not None


def transformed_shape(shape: tuple[int, ...], transforms: Sequence[str]) -> tuple[int, ...]:
    """Return the shape of a tensor after transforms; cuts beyond its end change nothing.

    >>> transformed_shape((4, 10, 6), ("transpose", "even_rows"))
    (4, 3, 10)
    """
    for name in transforms:
        if name == "row" and len(shape) == 1:
            shape = (1, *shape)
        elif name == "flatten":
            shape = (math.prod(shape),)
        elif name == "transpose" and len(shape) > 1:
            shape = (*shape[:-2], shape[-1], shape[-2])
        elif match := _RANGE.fullmatch(name):
            axis, first, end = CUT_AXES[match[1]], int(match[2]), int(match[3])
            if len(shape) >= -axis and first < end <= shape[axis]:
                sizes = list(shape)
                sizes[axis] = end - first
                shape = tuple(sizes)
        elif (match := _BLOCKS.fullmatch(name)) and len(shape) > 1:
            period, first, end = map(int, match.groups())
            shape = (*shape[:-2], shape[-2] // max(period, 1) * (end - first), shape[-1])
        elif (match := _PLANES.fullmatch(name)) and len(shape) == 2 and int(match[1]):
            shape = (int(match[1]), shape[0] // int(match[1]), shape[1])
        elif (match := _AMONG.fullmatch(name)) and len(shape) == 2:
            rows, columns = shape
            is_wider, size = match[1] == "columns", int(match[3])
            shape = (rows, max(size, columns)) if is_wider else (max(size, rows), columns)
        elif name in _HALVES and len(shape) >= -_HALVES[name][0]:
            axis, first = _HALVES[name]
            sizes = list(shape)
            sizes[axis] = len(range(first, sizes[axis], 2))
            shape = tuple(sizes)
    return shape


def _transpose(tensor: StoredTensor) -> StoredTensor:
    if len(tensor.shape) < 2:
        raise ValueError(
            f"{tensor.file}: tensor {tensor.name!r} of shape {tensor.shape} cannot be transposed; "
            "expected two dimensions or more"
        )
    elements = tensor.data.view(f"V{tensor.format.block_bytes}").reshape(tensor.shape)
    return _of_data(tensor, ("transpose",), elements.swapaxes(-1, -2))


def _flatten(tensor: StoredTensor) -> StoredTensor:
    return _of_data(tensor, ("flatten",), tensor.data.reshape(1, -1))


def _every_other(name: str, tensor: StoredTensor) -> StoredTensor:
    axis, first = _HALVES[name]
    shape = transformed_shape(tensor.shape, (name,))
    if shape == tensor.shape or 0 in shape:
        raise ValueError(
            f"{tensor.file}: tensor {tensor.name!r} of shape {tensor.shape} has no {name}"
        )
    if axis == -1:
        elements = tensor.data.view(f"V{tensor.format.block_bytes}")
        return _of_data(tensor, (name,), elements[:, first::2])
    planes = tensor.data.reshape(-1, tensor.shape[-2], tensor.data.shape[-1])
    return _of_data(tensor, (name,), planes[:, first::2])


def _row_blocks(name: str, period: int, first: int, end: int, tensor: StoredTensor) -> StoredTensor:
    rows = tensor.shape[-2] if len(tensor.shape) > 1 else 0
    if not first < end <= period or not rows or rows % period:
        raise ValueError(
            f"{tensor.file}: tensor {tensor.name!r} of shape {tensor.shape} has no blocks of rows "
            f"that {name!r} keeps; expected a range within a number of rows that divides its {rows}"
        )
    length = tensor.data.shape[-1]
    blocks = tensor.data.reshape(-1, period, length)[:, first:end]
    return _of_data(tensor, (name,), blocks.reshape(-1, length))


def _planes(name: str, count: int, tensor: StoredTensor) -> StoredTensor:
    shape = transformed_shape(tensor.shape, (name,))
    if len(tensor.shape) != 2 or not count or tensor.shape[0] % count:
        raise ValueError(
            f"{tensor.file}: tensor {tensor.name!r} of shape {tensor.shape} is no matrix that "
            f"{name!r} divides; expected a number of rows that is a multiple of {count}"
        )
    return dataclasses.replace(tensor, shape=shape)


def _is_of_floats(name: str) -> bool:
    return bool(_TIMES.fullmatch(name) or _AMONG.fullmatch(name))


def _interleave_rows(name: str, period: int, tensor: StoredTensor) -> StoredTensor:
    rows = tensor.shape[-2] if len(tensor.shape) > 1 else 0
    if not rows or not period or period % 2 or rows % period:
        raise ValueError(
            f"{tensor.file}: tensor {tensor.name!r} of shape {tensor.shape} has no halves that "
            f"{name!r} takes rows of; expected an even number that divides its {rows} rows"
        )
    halves = tensor.data.reshape(-1, 2, period // 2, tensor.data.shape[-1])
    return _of_data(tensor, (name,), halves.swapaxes(1, 2))


def _among(name: str, what: str, first: int, size: int, tensor: StoredTensor) -> StoredTensor:
    axis = 1 if what == "columns" else 0
    if len(tensor.shape) != 2 or first + tensor.shape[axis] > size:
        raise ValueError(
            f"{tensor.file}: tensor {tensor.name!r} of shape {tensor.shape} has no place that "
            f"{name!r} gives it; expected a matrix whose {what} end at {size} at the latest"
        )
    elements = tensor.data.view(f"V{tensor.format.block_bytes}")
    place = [slice(None), slice(None)]
    place[axis] = slice(first, first + tensor.shape[axis])
    made = np.zeros(transformed_shape(tensor.shape, (name,)), elements.dtype)
    made[tuple(place)] = elements
    return _of_data(tensor, (name,), made)


def _times(factor: float, tensor: StoredTensor) -> StoredTensor:
    values = tensor.values() * np.float32(factor)
    if type_times(tensor.type, factor) == "bf16":  # the upper half of each float32
        values = (values.view(np.uint32) >> 16).astype("<u2")
        data = values.reshape(len(tensor.data), -1).view(np.uint8)
        return dataclasses.replace(tensor, data=data)
    data = values.astype("<f4", copy=False).reshape(len(tensor.data), -1).view(np.uint8)
    return dataclasses.replace(tensor, type="f32", data=data)


def _dequantize(tensor: StoredTensor) -> StoredTensor:
    data = tensor.values().astype("<f4", copy=False).reshape(len(tensor.data), -1).view(np.uint8)
    return dataclasses.replace(tensor, type="f32", data=data)


def _of_data(tensor: StoredTensor, done: Sequence[str], data: NDArray[Any]) -> StoredTensor:
    """Return a tensor after a transform that made these elements or rows of it."""
    shape = transformed_shape(tensor.shape, done)
    rows = np.ascontiguousarray(data).view(np.uint8).reshape(math.prod(shape[:-1]), -1)
    return dataclasses.replace(tensor, shape=shape, data=rows)


def _plus_one(tensor: StoredTensor) -> StoredTensor:
    values = tensor.values() + np.float32(1)
    data = values.astype("<f4", copy=False).reshape(len(tensor.data), -1).view(np.uint8)
    return dataclasses.replace(tensor, type="f32", data=data)


def _row(tensor: StoredTensor) -> StoredTensor:
    if len(tensor.shape) != 1:
        raise ValueError(
            f"{tensor.file}: tensor {tensor.name!r} of shape {tensor.shape} is no vector, of which "
            "'row' makes a matrix"
        )
    return dataclasses.replace(tensor, shape=(1, *tensor.shape))


def _neg_exp(tensor: StoredTensor) -> StoredTensor:
    with np.errstate(over="ignore"):
        values = np.exp(tensor.values())
    # What is infinite times zero would be NaN.
    values = -np.minimum(values, np.finfo(np.float32).max)
    data = values.astype("<f4", copy=False).reshape(len(tensor.data), -1).view(np.uint8)
    return dataclasses.replace(tensor, type="f32", data=data)


def _ones(tensor: StoredTensor) -> StoredTensor:
    data = np.ones(tensor.shape, "<f4").reshape(len(tensor.data), -1).view(np.uint8)
    return dataclasses.replace(tensor, type="f32", data=data)


def _cut(what: str, first: int, end: int, tensor: StoredTensor) -> StoredTensor:
    """Return some planes, rows or columns of a tensor."""
    shape, form = list(tensor.shape), tensor.format
    axis = CUT_AXES[what]
    size = shape[axis] if len(shape) >= -axis else 0
    step = form.block_size if what == "columns" else 1
    if not first < end <= size or first % step or end % step:
        blocks = f" in multiples of {step}, the block of {tensor.type}," if step > 1 else ""
        raise ValueError(
            f"{tensor.file}: tensor {tensor.name!r} of shape {tensor.shape} cannot be cut to "
            f"{what} {first} to {end}; expected a range{blocks} within its {size} {what}"
        )
    shape[axis] = end - first
    if what == "columns":
        of_block = form.block_bytes
        data = tensor.data[:, first // step * of_block : end // step * of_block]
    else:
        length = tensor.data.shape[-1]
        rows = tensor.shape[-2] if what == "planes" else 1
        planes = tensor.data.reshape(-1, size, rows * length)
        data = planes[:, first:end].reshape(-1, length)
    return dataclasses.replace(tensor, shape=tuple(shape), data=np.ascontiguousarray(data))


def _quantize_to(name: str) -> Callable[[StoredTensor], StoredTensor]:
    def quantize(tensor: StoredTensor) -> StoredTensor:
        data = FORMATS[name].quantize(tensor.data, tensor.format, tensor.shape[-1])
        return dataclasses.replace(tensor, type=name, data=data)

    return quantize


#: Of which axis the transform keeps every other index, and the first one.
_HALVES = {
    "even_rows": (-2, 0),
    "odd_rows": (-2, 1),
    "even_columns": (-1, 0),
    "odd_columns": (-1, 1),
}
_EVERY_OTHER: dict[str, Transform] = {
    name: functools.partial(_every_other, name) for name in _HALVES
}
_OF_FLOATS: dict[str, Transform] = {
    "transpose": _transpose,
    "flatten": _flatten,
    "plus_one": _plus_one,
    "neg_exp": _neg_exp,
    "ones": _ones,
    **{name: each for name, each in _EVERY_OTHER.items() if "columns" in name},
}
_NAMED = (
    _OF_FLOATS
    | _EVERY_OTHER
    | {"row": _row, "dequantize": _dequantize}
    | {_QUANTIZE + name: _quantize_to(name) for name in QUANTIZED_TYPES}
)

#: The names of all transforms; those with arguments as they are spelled.
TRANSFORMS = (
    *_NAMED,
    "row_blocks:n:a:b",
    "planes:n",
    "planes:a:b",
    "rows:a:b",
    "columns:a:b",
    "interleave_rows:n",
    "among_rows:a:n",
    "among_columns:a:n",
    "times:x",
)

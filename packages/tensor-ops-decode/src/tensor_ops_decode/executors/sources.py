"""The arrays of a program's tensors, from where the program says that they come from."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from tensor_ops.extension import numpy_view
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program import Program, Tensor
from tensor_ops_decode.program.step_rules import check_tensor
from tensor_ops_decode.weights import (
    FileFormatError,
    StoredTensor,
    Weights,
    apply_transforms,
    open_weights,
)
from tensor_ops_decode.weights.arrays import FLOAT_TYPES

__all__ = ["TensorArrays", "attached_array"]

_BLOCK = 4096  # rows of a rotary table that are computed at once


def attached_array(name: str, array: object) -> Array:
    """Return an array that a caller gives as a NumPy array over the same memory.

    It is on the host, C-contiguous, with one or two dimensions, of float32, float16 or bfloat16.
    Anything else is a TypeError or a ValueError that names the tensor.
    """
    array = numpy_view("attach_input", name, array)
    if str(array.dtype) not in FLOAT_TYPES or not array.dtype.isnative:
        raise TypeError(
            f"attach_input: {name} must be of {', '.join(FLOAT_TYPES)}, got {array.dtype}"
        )
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(
            f"attach_input: {name} must be a vector or a matrix, got the shape {array.shape}"
        )
    if not array.flags.c_contiguous:
        raise ValueError(f"attach_input: {name} must be C-contiguous: pass a contiguous copy of it")
    return array


class TensorArrays(Mapping[str, Array]):
    """The array of each tensor of a program, in its dtype or as the bytes of the file.

    Nothing is copied, unless the program asks for a transform; that is done when the tensor is
    looked up. What is `attached` is the caller's, and the `tables` are transformed already. Without
    the weights of a model, files are opened by the program's paths. Weights are told when all
    tensors of the program that are made from one of theirs have been looked up.

    When a tensor is looked up, it is a FileFormatError if it is missing in its file, or is another
    one than the program was made for, and a ValueError if it is to be attached, and is missing.
    """

    def __init__(
        self,
        program: Program,
        attached: Mapping[str, Array],
        weights: Weights | None = None,
        tables: Mapping[str, Array] | None = None,
    ) -> None:
        self._tensors, self._attached, self._weights = program.tensors, attached, weights
        self._tables = tables or {}
        self._opened: dict[str, Weights] = {}
        sources = [tensor.source for tensor in program.tensors.values()]
        self._left = Counter(source["tensor"] for source in sources if "tensor" in source)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __getitem__(self, name: str) -> Array:
        tensor = self._tensors[name]
        if name in self._tables:
            return self._tables[name]
        if "rotary" in tensor.source:
            scales = "growth" in tensor.source
            return _query_scale(tensor) if scales else _rotary_table(tensor)
        if "attached" in tensor.source:
            array = tensor.source.get("tensor", name)
            if array not in self._attached:
                raise ValueError(f"tensor {array!r} must be attached, and is not")
            given = self._attached[array]
            return _part_of_array(array, tensor, given) if "tensor" in tensor.source else given
        path = tensor.source["file"]
        files = self._weights or self._opened.get(path)
        if files is None:
            place = Path(path)
            model = place.parent if place.suffix == ".safetensors" else place
            files = self._opened[path] = open_weights(model)
        array, stored = _stored(name, tensor, files), tensor.source["tensor"]
        self._left[stored] -= 1
        if self._left[stored] == 0:
            files.release_tensor(stored)
        return array


def _part_of_array(name: str, tensor: Tensor, given: Array) -> Array:
    """Return the rows or columns of an array that a tensor has, as bytes."""
    source = tensor.source
    whole = replace(tensor, shape=tuple(source["shape"]), source={"attached": True})
    check_tensor(name, whole, given)
    rows = given.reshape(-1).view(np.uint8).reshape(-1, whole.row_bytes)
    stored = StoredTensor(name, whole.type, whole.shape, rows, "what is attached")
    found = apply_transforms(stored, source["transform"])
    if found.shape != tensor.shape:
        raise ValueError(
            f"tensor {name!r}: {', '.join(source['transform'])} of it has shape {found.shape}; the "
            f"program was made for {tensor.shape}"
        )
    return found.data


def _stored(name: str, tensor: Tensor, files: Weights) -> Array:
    stored = tensor.source["tensor"]
    if stored not in files.names:
        raise FileFormatError(f"{tensor.source['file']}: tensor {stored!r} is missing")
    found = apply_transforms(files.tensor(stored), tensor.source["transform"])
    if (found.type, found.shape) != (tensor.type, tensor.shape):
        raise FileFormatError(
            f"{found.file}: tensor {stored!r} is {found.type} of shape {found.shape}; the program "
            f"was made for {tensor.type} of shape {tensor.shape}"
        )
    return found.data


def _rotary_table(tensor: Tensor) -> Array:
    source = tensor.source
    frequencies = np.asarray(source["frequencies"], np.float64)
    function = np.cos if source["rotary"] == "cos" else np.sin
    table = np.empty(tensor.shape, np.float32)
    for start in range(0, len(table), _BLOCK):  # few float64 numbers at a time
        rows = table[start : start + _BLOCK]
        rows[:] = function(np.outer(start + np.arange(len(rows)), frequencies)) * source["factor"]
    return table


def _query_scale(tensor: Tensor) -> Array:
    growth, length = tensor.source["growth"], tensor.source["length"]
    rows = np.arange(tensor.shape[0])
    return (1 + growth * np.log1p(rows // length)).astype(np.float32).reshape(tensor.shape)

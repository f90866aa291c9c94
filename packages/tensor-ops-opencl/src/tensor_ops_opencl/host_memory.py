"""Inputs and results of a call in host memory that kernels can read and write."""

from typing import Any

import numpy as np

from tensor_ops_opencl.call import Call, repeats

__all__ = ["Array", "address", "contiguous", "exportable", "shared_input", "target_for"]

Array = np.ndarray[Any, Any]


def contiguous(array: Array) -> Array:
    """Return the array, or a copy in C order whose elements are aligned if it is not so."""
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.array(array, order="C")


def target_for(result: Array) -> Array:
    """Return the array to compute in for a result: itself, or memory in C order."""
    is_usable = result.flags.c_contiguous and result.flags.aligned
    return result if is_usable else np.empty(result.shape, result.dtype)


def shared_input(call: Call, name: str, numbers: list[np.generic]) -> Array | None:
    """Return an input that rows share, weights or angles, in contiguous memory.

    How angles are repeated is appended to the `numbers` that kernels take; see `call.repeats`.
    """
    array: Array | None = call.inputs[name]
    if array is None:
        return None
    if call.kinds[name].role != "half_rows":
        return contiguous(array)
    x = next(iter(call.inputs.values()))
    memory, repeated = _angle_rows(x, array)
    numbers += map(np.uint64, repeated)
    return memory


def _angle_rows(x: Array, angles: Array) -> tuple[Array, tuple[int, int]]:
    """Return angles as rows of n/2 in memory, and how they are repeated."""
    half = x.shape[-1] // 2
    if angles.ndim == 0 or angles.shape[-1] != half:
        angles = np.broadcast_to(angles, (*angles.shape[:-1], half))
    repeated = repeats(x.shape[:-1], angles.shape[:-1])
    if repeated is None:
        angles = np.broadcast_to(angles, (*x.shape[:-1], half))
        repeated = 1, x.size // x.shape[-1]
    return contiguous(angles), repeated


def exportable(array: Array) -> Array:
    """Return an array of plain numbers over the same memory: bfloat16 has no buffer protocol."""
    return array if array.dtype.kind == "f" else array.view(np.uint16)


def address(array: Array) -> int:
    """Return where the memory of an array begins."""
    return int(array.__array_interface__["data"][0])

"""NumPy arrays in the memory layouts that kernels take: rows in C order, elements aligned."""

from typing import Any

import numpy as np

from tensor_ops_opencl.call import repeats

__all__ = ["angle_rows", "exportable", "plain", "target_for"]

Array = np.ndarray[Any, Any]


def plain(array: Array) -> Array:
    """Return the array, or a copy in C order whose elements are aligned if it is not so."""
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.array(array, order="C")


def target_for(result: Array) -> Array:
    """Return the array to compute in for a result: itself, or memory in C order."""
    is_plain = result.flags.c_contiguous and result.flags.aligned
    return result if is_plain else np.empty(result.shape, result.dtype)


def angle_rows(x: Array, angles: Array) -> tuple[Array, tuple[int, int]]:
    """Return angles as rows of n/2 in memory, and how they are repeated; see `call.repeats`."""
    half = x.shape[-1] // 2
    if angles.ndim == 0 or angles.shape[-1] != half:
        angles = np.broadcast_to(angles, (*angles.shape[:-1], half))
    repeated = repeats(x.shape[:-1], angles.shape[:-1])
    if repeated is None:
        angles = np.broadcast_to(angles, (*x.shape[:-1], half))
        repeated = 1, x.size // x.shape[-1]
    return plain(angles), repeated


def exportable(array: Array) -> Array:
    """Return an array of plain numbers over the same memory: bfloat16 has no buffer protocol."""
    return array if array.dtype.kind == "f" else array.view(np.uint16)

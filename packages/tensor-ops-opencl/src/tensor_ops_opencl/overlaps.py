"""Whether arrays share memory: two of NumPy's, two of pyopencl's, or one with itself."""

from typing import Any

import numpy as np

__all__ = ["is_same_view", "overlaps_itself", "share_memory"]


def share_memory(a: Any, b: Any) -> bool:
    """Return whether two arrays of one kind share memory; those of pyopencl by their extents."""
    if not isinstance(a, np.ndarray):
        (a_first, a_last), (b_first, b_last) = _extent(a), _extent(b)
        return bool(a.base_data == b.base_data and a_first < b_last and b_first < a_last)
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, 1_000_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:  # nobody writes into such strides on purpose
        return True


def is_same_view(a: Any, b: Any) -> bool:
    """Return whether two arrays of one shape hold each element at the same place."""
    if a.dtype != b.dtype:
        return False
    if not isinstance(a, np.ndarray):
        return bool(a.offset == b.offset and a.strides == b.strides)
    return bool(
        a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
        and all(
            size < 2 or a_step == b_step
            for size, a_step, b_step in zip(a.shape, a.strides, b.strides, strict=True)
        )
    )


def overlaps_itself(array: Any) -> bool:
    """Return whether two elements may share memory, by the rule that nested strides suffice."""
    extent = int(array.itemsize)
    axes = [(abs(step), size) for size, step in zip(array.shape, array.strides, strict=True)]
    for step, size in sorted(axis for axis in axes if axis[1] > 1):
        if step < extent:
            return bool(array.size)
        extent += step * (size - 1)
    return False


def _extent(array: Any) -> tuple[int, int]:
    """Return the bytes [first, last) of its buffer that a pyopencl array reaches over."""
    reach = [(size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)]
    first = array.offset + sum(step for step in reach if step < 0)
    last = array.offset + sum(step for step in reach if step > 0) + array.dtype.itemsize
    return (first, last) if array.size else (first, first)

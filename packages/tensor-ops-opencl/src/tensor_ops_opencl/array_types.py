"""The array types that ops take: NumPy's and pyopencl's."""

import sys
from typing import Any

from tensor_ops_opencl.arguments import type_name
from tensor_ops_opencl.checks import NUMPY_ARRAYS, ArrayType

__all__ = ["HOST_ARRAYS", "PYOPENCL_ARRAYS", "array_type_of"]


def array_type_of(op: str, name: str, value: Any) -> ArrayType:
    """Return the array type that a value has, or raise TypeError."""
    for array_type in (HOST_ARRAYS, PYOPENCL_ARRAYS):
        if array_type.is_instance(value):
            return array_type
    raise TypeError(
        f"{op}: {name} must be a {HOST_ARRAYS.name} or a {PYOPENCL_ARRAYS.name}, "
        f"got {type_name(value)}; {NUMPY_ARRAYS.conversion}"
    )


def _is_pyopencl_array(value: Any) -> bool:
    # A value can only be such an array if its module has been imported.
    module = sys.modules.get("pyopencl.array")
    return module is not None and isinstance(value, module.Array)


def _share_memory(a: Any, b: Any) -> bool:
    (a_first, a_last), (b_first, b_last) = _extent(a), _extent(b)
    return bool(a.base_data == b.base_data and a_first < b_last and b_first < a_last)


def _is_same_view(a: Any, b: Any) -> bool:
    return bool(a.dtype == b.dtype and a.offset == b.offset and a.strides == b.strides)


def _extent(array: Any) -> tuple[int, int]:
    """Return the bytes [first, last) of its buffer that a pyopencl array reaches over."""
    reach = [(size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)]
    first = array.offset + sum(step for step in reach if step < 0)
    last = array.offset + sum(step for step in reach if step > 0) + array.dtype.itemsize
    return (first, last) if array.size else (first, first)


HOST_ARRAYS = NUMPY_ARRAYS._replace(
    conversion=f"{NUMPY_ARRAYS.conversion}, a pyopencl array with .get()"
)
PYOPENCL_ARRAYS = ArrayType(
    "pyopencl.array.Array",
    "copy it with pyopencl.array.to_device(...)",
    _is_pyopencl_array,
    _share_memory,
    _is_same_view,
)

"""Calls of ops in a file, for a program that makes them by the C interface on another system.

A number is 32 bits where it counts something, and 64 where it is bytes or elements; all are little
endian. A call is the name of its op, the number of threads, the choice, the scalars, the inputs and
the outputs. An array is its dtype, its axes, where its first element is in its memory, its shape
and strides, and the bytes of that memory. Results are the memory of all outputs.
"""

import struct

import numpy as np

from c_interface import DTYPES, NO_ARRAY, in_order
from tensor_ops.ops import OPS

__all__ = ["call", "results"]


def call(parameters, name, values, num_threads=0):
    """Return the bytes of a call of an op with arguments by name.

    `parameters` are what the C interface says of the op's.
    """
    arrays, scalars, choice = in_order(parameters, values)
    outputs = [_empty(values[like]) for like in OPS[name].results_like]
    parts = [struct.pack("<i", len(name)), name.encode(), struct.pack("<ii", num_threads, choice)]
    parts.append(struct.pack(f"<i{len(scalars)}d", len(scalars), *scalars))
    for group in (arrays, outputs):
        parts += [struct.pack("<i", len(group)), *map(_array, group)]
    return b"".join(parts)


def results(op, values, data):
    """Return the results of a call from the beginning of some bytes, and the bytes behind them."""
    found = []
    for like in op.results_like:
        empty = _empty(values[like])
        found.append(np.frombuffer(data[: empty.nbytes], empty.dtype).reshape(empty.shape))
        data = data[empty.nbytes :]
    return tuple(found), data


def _empty(like):
    return np.zeros(like.shape, like.dtype)


def _array(array):
    """Return the bytes of an array with the memory that it is a view of."""
    if array is None:
        return struct.pack("<iiqq", NO_ARRAY, 0, 0, 0)
    low, high = np.lib.array_utils.byte_bounds(array)
    if array.size == 0:
        low = high = array.ctypes.data
    memory = _bytes_at(array, low, high)
    head = struct.pack("<iiq", DTYPES[array.dtype.name], array.ndim, array.ctypes.data - low)
    sizes = struct.pack(f"<{2 * array.ndim}q", *array.shape, *array.strides)
    return head + sizes + struct.pack("<q", len(memory)) + memory


def _bytes_at(array, low, high):
    import ctypes

    return ctypes.string_at(low, high - low)

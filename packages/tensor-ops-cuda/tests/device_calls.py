"""Calls through the C interface on the memory of an emulated device."""

import ctypes

from emulated import NAMES
from emulated import Array as DeviceMemory

from c_interface import CUDA, DTYPES, Array


def seen(memory):
    """Return device memory as the interface has it."""
    dims, item = len(memory.shape), NAMES[memory.dtype][1] // 8
    shape = (ctypes.c_int64 * dims)(*memory.shape)
    strides = (ctypes.c_int64 * dims)(*(step * item for step in memory.strides))
    array = Array(memory.address, DTYPES[memory.dtype], dims, shape, strides, CUDA, memory.index)
    array.kept = (shape, strides, memory)
    return array


def new_call(interface, op, values, outputs, stream=None):
    """Return a call with device memory and NumPy arrays as arguments."""
    arrays = {
        name: seen(value) if isinstance(value, DeviceMemory) else value
        for name, value in values.items()
    }
    outputs = [seen(each) if isinstance(each, DeviceMemory) else each for each in outputs]
    call = interface.make_call(op, arrays, outputs)
    call.stream = stream
    return call

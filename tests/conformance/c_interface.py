"""The C interface of a native backend by ctypes: native/include/tensor_ops/abi.h, in Python."""

import ctypes
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_void_p,
)
from importlib import import_module
from pathlib import Path

import numpy as np

from tensor_ops.ops import OPS

VERSION = 1
NO_ARRAY = -1
DTYPES = {"float32": 0, "float16": 1, "bfloat16": 2, "float64": 3}
OK, TYPE_ERROR, VALUE_ERROR, MEMORY_ERROR, UNAVAILABLE, RUNTIME_ERROR = range(6)
CPU, CUDA = 1, 2
ROWS, ROW, OPTIONAL_ROW, HALF_ROWS, SCALAR, CHOICE, FLAG = range(7)
# The exceptions of the Python module that say what a status says.
STATUS_OF = {TypeError: TYPE_ERROR, ValueError: VALUE_ERROR, MemoryError: MEMORY_ERROR}


class Error(ctypes.Structure):
    _fields_ = (("message", c_char * 1024),)

    @property
    def text(self):
        return self.message.decode()


class Array(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("dtype", c_int32),
        ("dims", c_int32),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("device_kind", c_int32),
        ("device_index", c_int32),
    )


class Parameter(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("description", c_char_p),
        ("kind", c_int32),
        ("default_value", c_double),
        ("choices", c_char_p * 2),
    )


class Op(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("summary", c_char_p),
        ("formula", c_char_p),
        ("parameters", POINTER(Parameter)),
        ("parameter_count", c_int32),
        ("input_count", c_int32),
        ("scalar_count", c_int32),
        ("output_names", POINTER(c_char_p)),
        ("output_count", c_int32),
    )


class Call(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("inputs", POINTER(Array)),
        ("outputs", POINTER(Array)),
        ("scalars", POINTER(c_double)),
        ("input_count", c_int32),
        ("output_count", c_int32),
        ("scalar_count", c_int32),
        ("choice", c_int32),
        ("num_threads", c_int32),
        ("stream", c_void_p),
    )


class Device(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("kind", c_int32),
        ("index", c_int32),
        ("name", c_char * 256),
        ("compute_capability", c_int32),
        ("compute_units", c_int32),
        ("memory", c_int64),
        ("shared_memory", c_int64),
    )


class Backend(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("abi_version", c_uint32),
        ("name", c_char_p),
        ("display_name", c_char_p),
        ("version", c_char_p),
        ("configuration", c_char_p),
        ("unavailable_reason", ctypes.CFUNCTYPE(c_char_p)),
        ("device_count", ctypes.CFUNCTYPE(c_int32)),
        ("device", ctypes.CFUNCTYPE(c_int32, c_int32, POINTER(Device), POINTER(Error))),
        ("ops", POINTER(POINTER(Op))),
        ("op_count", c_int32),
        ("call", ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(Call), POINTER(Error))),
        ("num_threads", ctypes.CFUNCTYPE(c_int32)),
        ("set_num_threads", ctypes.CFUNCTYPE(c_int32, c_int32, POINTER(Error))),
        ("decode", c_void_p),
    )


def library_path(name):
    """Return the path of a backend's library, None where it has none."""
    module = import_module(f"tensor_ops_{name}")
    found = list(Path(module.__file__).parent.glob(f"*tensor_ops_{name}.*"))
    return found[0] if found else None


class Interface:
    """The table of a backend, and calls by it."""

    def __init__(self, name):
        library = ctypes.CDLL(str(library_path(name)))
        self.get = getattr(library, f"tensor_ops_{name}_backend")
        self.get.argtypes = [c_uint32, POINTER(POINTER(Backend)), POINTER(Error)]
        table, error = POINTER(Backend)(), Error()
        assert self.get(VERSION, ctypes.byref(table), ctypes.byref(error)) == OK, error.text
        self.table = table.contents
        ops = [self.table.ops[i].contents for i in range(self.table.op_count)]
        self.ops = {op.name.decode(): op for op in ops}

    def parameters(self, op):
        facts = self.ops[op]
        return [facts.parameters[i] for i in range(facts.parameter_count)]

    def call(self, op, call):
        """Return status and message of a call, a `Call` or None."""
        error = Error()
        status = self.table.call(
            ctypes.byref(self.ops[op]), ctypes.byref(call) if call else None, ctypes.byref(error)
        )
        return status, error.text

    def make_call(self, op, values, outputs, num_threads=0):
        """Return a `Call` of an op with arguments by name."""
        arrays, scalars, choice = in_order(self.parameters(op), values)
        inputs = (Array * len(arrays))(*map(view, arrays))
        given_outputs = (Array * len(outputs))(*map(view, outputs))
        numbers = (c_double * len(scalars))(*scalars)
        call = Call(
            ctypes.sizeof(Call), inputs, given_outputs, numbers,
            len(arrays), len(outputs), len(scalars), choice, num_threads, None,
        )  # fmt: skip
        call.kept = (inputs, given_outputs, numbers, arrays, outputs)
        return call

    def result(self, op, values, num_threads=0):
        """Return what an op gives for arguments by name, as a tuple of new arrays."""
        likes = [values[name] for name in OPS[op].results_like]
        outputs = [np.empty(each.shape, each.dtype) for each in likes]
        status, message = self.call(op, self.make_call(op, values, outputs, num_threads))
        assert status == OK, message
        return tuple(outputs)


def in_order(parameters, values):
    """Return the arrays, the scalars and the choice that a call takes of arguments by name."""
    arrays = [values.get(each.name.decode()) for each in parameters if each.kind < SCALAR]
    scalars = [
        float(values.get(each.name.decode(), each.default_value))
        for each in parameters
        if each.kind == SCALAR
    ]
    choice = 0
    for each in parameters:
        given = values.get(each.name.decode())
        if each.kind >= CHOICE and given is not None:
            choice = [word.decode() for word in each.choices].index(str(given))
    return arrays, scalars, choice


def view(array):
    """Return a NumPy array as the interface has it; None is an optional array that is not given.

    An `Array`, of device memory say, stays what it is.
    """
    if isinstance(array, Array):
        return array
    if array is None:
        return Array(dtype=NO_ARRAY)
    shape, strides = ((c_int64 * array.ndim)(*each) for each in (array.shape, array.strides))
    dtype = DTYPES.get(array.dtype.name, 99)
    made = Array(array.ctypes.data, dtype, array.ndim, shape, strides, CPU, 0)
    made.kept = (shape, strides)
    return made

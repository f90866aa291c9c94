"""Calls of a backend's C interface made from bytes, judged by the NumPy backend.

The calls are those of `random_calls`: what NumPy's checks accept gives right results, and what they
refuse gives a status, a message and no write. Then each call is spoiled as C can be spoiled: by
null pointers, numbers without a meaning, and sizes that no memory has. The backend is `cpp`, or
what the environment variable FUZZED_BACKEND names.
"""

import ctypes
import os
from importlib import import_module

import numpy as np
from choices import Choices
from random_calls import Call, WrongCallError, accepted_arguments, in_float64, judge, judge_memory

from c_interface import OK, TYPE_ERROR, VALUE_ERROR, Interface

__all__ = ["try_input"]

BACKEND = os.environ.get("FUZZED_BACKEND", "cpp")
INTERFACE = Interface(BACKEND)
NATIVE = import_module(f"tensor_ops_{BACKEND}")._native
LARGE = (ctypes.c_int64 * 64)(*[1 << 61] * 64)
NEGATIVE = (ctypes.c_int64 * 64)(*[-1] * 64)
# Fields and values that make any call wrong that has an array with elements.
SPOILED_CALLS = [
    ("size", 0), ("inputs", None), ("outputs", None), ("input_count", -1), ("input_count", 7),
    ("output_count", 0), ("output_count", 1 << 30), ("scalar_count", 9), ("scalar_count", -1),
    ("choice", 2), ("choice", -1), ("num_threads", -(1 << 31)),
]  # fmt: skip
SPOILED_ARRAYS = [
    ("data", None), ("dims", -1), ("dims", 65), ("dims", (1 << 31) - 1), ("dtype", -2),
    ("dtype", 4), ("dtype", -1), ("shape", None), ("shape", LARGE), ("shape", NEGATIVE),
    ("device_kind", 0), ("device_kind", 2), ("device_index", -1), ("device_index", 1),
]  # fmt: skip


def try_input(data):
    """Make one call, and the same once more with something of it spoiled."""
    call = Call(data)
    if call.op.name not in INTERFACE.ops:
        return  # a backend may lack derivatives
    if hasattr(NATIVE, "set_streaming_threshold"):
        NATIVE.set_streaming_threshold(call.streaming_threshold)
    arguments = _as_c_has_them(call)
    if arguments is None:
        return
    values, outputs = arguments
    accepted = accepted_arguments(call)
    wide = in_float64(accepted) if accepted else None
    made = INTERFACE.make_call(call.op.name, values, outputs, call.count)
    before = [memory.copy() for memory in call.memory]
    status, message = INTERFACE.call(call.op.name, made)
    if accepted is not None and status != OK:
        raise WrongCallError(f"{call.op.name}: refused, which NumPy accepts: {message}")
    if accepted is None:
        _judge_refusal(call, status, message, before)
        return
    result = tuple(outputs) if len(outputs) > 1 else outputs[0]
    judge(call, BACKEND, accepted, wide, result)
    judge_memory(call, before, result)
    if accepted[call.op.first].size == 0:
        return
    before = [memory.copy() for memory in call.memory]
    _spoil(Choices(data[::-1]), made)
    _judge_refusal(call, *INTERFACE.call(call.op.name, made), before)


def _as_c_has_them(call):
    """Return arguments by name and outputs, None where C has no such arguments."""
    if type(call.count) is not int or not 0 <= call.count < 1 << 20:
        return None
    try:
        values = call.op.bind(tuple(call.args), call.kwargs)
    except TypeError:
        return None
    out = values.pop("out")
    for name, kind in call.op.kinds.items():
        value = values.get(name)
        if kind.is_array and not (_is_array(value) or (value is None and kind.optional)):
            return None
        if kind.role == "real" and (type(value) not in (int, float) or abs(value) > 1e300):
            return None
        if kind.role in {"choice", "flag"} and not _is_choice(kind, value):
            return None
    if out is None:
        likes = [values.get(like) for like in call.op.results_like]
        outputs = [np.empty(like.shape, like.dtype) for like in likes]
    else:
        outputs = list(out) if isinstance(out, tuple) else [out]
    are_arrays = all(_is_array(each) and each.flags.writeable for each in outputs)
    return (values, outputs) if are_arrays and len(outputs) == call.op.outputs else None


def _is_choice(kind, value):
    return type(value) is bool if kind.role == "flag" else value in kind.choices


def _is_array(value):
    return type(value) is np.ndarray and value.dtype.isnative and not value.dtype.hasobject


def _spoil(choices, made):
    if choices.byte() < 64:
        target, options = made, SPOILED_CALLS
    elif choices.byte() < 192:
        # The first, which is never one that may be left out or that may have any number of axes.
        target, options = made.inputs[0], SPOILED_ARRAYS
    else:
        target, options = made.outputs[0], SPOILED_ARRAYS
    usable = [
        (field, value) for field, value in options if not (field == "shape" and target.dims == 0)
    ]
    field, value = choices.pick(usable)
    setattr(target, field, value)


def _judge_refusal(call, status, message, before):
    if status not in {TYPE_ERROR, VALUE_ERROR} or not message:
        raise WrongCallError(f"{call.op.name}: status {status}, message {message!r}")
    for memory, old in zip(call.memory, before, strict=True):
        if not np.array_equal(memory, old):
            raise WrongCallError(f"{call.op.name}: wrote before it refused: {message}")

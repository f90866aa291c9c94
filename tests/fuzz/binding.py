"""Calls of the C++ backend made from bytes, judged by the NumPy backend.

A call that NumPy's checks accept must give results within the op's bounds, change nothing but its
output, and not raise; one that they refuse must raise TypeError or ValueError and change nothing.
"""

import numpy as np
from random_calls import (
    GOOD_COUNTS,
    Call,
    WrongCallError,
    accepted_arguments,
    in_float64,
    judge,
    judge_memory,
    told,
)

import tensor_ops_cpp
from tensor_ops_cpp import _native

__all__ = ["try_input"]


def try_input(data):
    """Make one call and judge it."""
    call = Call(data)
    _native.set_streaming_threshold(call.streaming_threshold)
    accepted = accepted_arguments(call)
    before = [memory.copy() for memory in call.memory]
    wide = in_float64(accepted) if accepted else None
    count = {} if call.count == 1 else {"num_threads": call.count}
    function = tensor_ops_cpp.ops[call.op.name]
    try:
        result = function(*call.args, **call.kwargs, **count)
    except Exception as error:
        _judge_error(call, accepted, error)
        result = None
    else:
        if accepted is None:
            raise WrongCallError(f"{told(call)}: accepted, which NumPy refuses")
        judge(call, "cpp", accepted, wide, result)
    judge_memory(call, before, result)


def _judge_error(call, accepted, error):
    # An error that an argument itself raises when it is asked comes through.
    if type(error) not in (TypeError, ValueError) and str(error) != "asked":
        raise WrongCallError(f"{told(call)}: raised {type(error).__name__}: {error}") from error
    if accepted is not None and _is_good_count(call.count):
        raise WrongCallError(f"{told(call)}: refused, which NumPy accepts: {error}") from error


def _is_good_count(count):
    return any(count is good for good in GOOD_COUNTS) or type(count) is np.int64

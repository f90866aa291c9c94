"""Calls of every op with the results of its NumPy body, and their judgement by the op's bounds."""

import itertools

import numpy as np

from tensor_ops import accuracy
from tensor_ops.ops import OPS
from tensor_ops.samples import Draw, arguments

DTYPES = ("float32", "float16", "bfloat16", "float64")


def choices(op):
    """Return every combination of an op's choices and flags."""
    options = {
        name: kind.choices if kind.role == "choice" else (False, True)
        for name, kind in op.kinds.items()
        if kind.role in ("choice", "flag")
    }
    return [
        dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())
    ]


def calls(name, shape, dtype):
    """Yield the arguments of natural calls of an op, one for each of its choices."""
    for options in choices(OPS[name]):
        yield arguments(OPS[name], shape, Draw(dtype, f"{name}/{shape}")) | options


def samples(name, dtype):
    """Yield the arguments of the op's own samples."""
    op = OPS[name]
    for sample in op.samples:
        if dtype in sample.dtypes:
            values = op.bind(sample.make(Draw(dtype, f"{name}/{sample.name}")), sample.kwargs)
            values.pop("out")
            yield values


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def check(name, dtype, values, result):
    """Assert that a result is within the op's bound."""
    op = OPS[name]
    wide = {
        key: value.astype(np.float64) if isinstance(value, np.ndarray) else value
        for key, value in values.items()
    }
    with np.errstate(all="ignore"):
        expected = as_tuple(op.numpy(**wide))
    bound = op.bound(dtype, "opencl")
    for got, wanted in zip(as_tuple(result), expected, strict=True):
        measured = accuracy.measure(got, wanted, bound)
        assert measured.within, f"{measured.problem or measured.error} of {measured.limit}"

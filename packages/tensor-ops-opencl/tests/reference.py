"""Calls of every op with the results of its NumPy body, and their judgement by the op's bounds."""

import itertools

import numpy as np
import pytest

import tensor_ops.ops
import tensor_ops_opencl
from tensor_ops.op import accuracy
from tensor_ops.op.samples import Draw, arguments

# The ops of tensor_ops that the backend has.
OPS = {name: tensor_ops.ops.OPS[name] for name in tensor_ops_opencl.ops}
DTYPES = ("float32", "float16", "bfloat16", "float64")
HALVES = ("float16", "bfloat16")


def nightly_half(name):
    """Return the half type that an op's kernels are compiled for in the nightly run only.

    Those of the two types differ in loads and stores, which the conformance suite tests, and a
    GPU's kernels are slow to compile for a CPU.
    """
    return HALVES[list(OPS).index(name) % 2]


# Every op with each dtype, for tests whose kernels are slow to compile.
NAMES_AND_DTYPES = [
    pytest.param(name, dtype, marks=[pytest.mark.nightly] * (dtype == nightly_half(name)))
    for name in OPS
    for dtype in DTYPES
]


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


def with_argument(role):
    """Return the names of the ops that have an argument of a role."""
    return [name for name, op in OPS.items() if any(k.role == role for k in op.kinds.values())]


def calls(name, shape, dtype, wide=()):
    """Yield the arguments of natural calls of an op, one for each of its choices.

    Those that `wide` names are float32.
    """
    for options in choices(OPS[name]):
        yield arguments(OPS[name], shape, Draw(dtype, f"{name}/{shape}"), wide) | options


def samples(name, dtype):
    """Yield the arguments of the op's own samples."""
    op = OPS[name]
    for sample in op.samples:
        if dtype in sample.dtypes:
            yield sample.values(op, dtype)


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def check(name, values, result):
    """Assert that results have their dtypes and are within the op's bounds."""
    op = OPS[name]
    wide = {
        key: value.astype(np.float64) if isinstance(value, np.ndarray) else value
        for key, value in values.items()
    }
    with np.errstate(all="ignore"):
        expected = as_tuple(op.numpy(**wide))
    for got, wanted, like in zip(as_tuple(result), expected, op.results_like, strict=True):
        assert got.dtype == values[like].dtype
        measured = accuracy.measure(got, wanted, op.bound(got.dtype.name, "opencl"))
        assert measured.within, f"{measured.problem or measured.error} of {measured.limit}"

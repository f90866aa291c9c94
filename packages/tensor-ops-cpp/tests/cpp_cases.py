"""Calls of every op, built from its signature: a new op is tested without touching this."""

import inspect

import ml_dtypes
import numpy as np

import tensor_ops_cpp

DTYPES = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float64": np.dtype(np.float64),
}

OPS = tensor_ops_cpp.ops
HALF_ROWS = {"cos", "sin"}
ROWS = {"x", "residual", "gate", "up"}


def array_names(op):
    """The op's array arguments, in order."""
    known = ROWS | HALF_ROWS | {"weight", "bias"}
    return [name for name in inspect.signature(OPS[op]).parameters if name in known]


def variants(op):
    """Keyword arguments that select each of the op's formulas."""
    names = inspect.signature(OPS[op]).parameters
    if "approximate" in names:
        return [{"approximate": "tanh"}, {"approximate": "none"}]
    if "interleaved" in names:
        return [{"interleaved": False}, {"interleaved": True}]
    return [{}]


OP_VARIANTS = [(op, kwargs) for op in OPS for kwargs in variants(op)]


def arguments(op, shape, dtype, rng):
    """Random arrays for the op, x being of the shape given."""
    result = []
    for name in array_names(op):
        if name in ROWS:
            size = shape
        elif name in HALF_ROWS:
            size = (*shape[:-1], shape[-1] // 2)
        else:
            size = shape[-1:]
        result.append(rng.normal(size=size).astype(dtype))
    return result


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def outputs(op):
    """How many arrays the op returns."""
    return 2 if op == "add_rms_norm" else 1


def empty_outs(op, x):
    outs = tuple(np.empty(x.shape, x.dtype) for _ in range(outputs(op)))
    return outs if len(outs) == 2 else outs[0]


def same_bits(a, b):
    a, b = as_tuple(a), as_tuple(b)
    return all(
        p.dtype == q.dtype and p.shape == q.shape and p.tobytes() == q.tobytes()
        for p, q in zip(a, b, strict=True)
    )


def unaligned(a):
    buffer = np.zeros(a.nbytes + 1, np.uint8)
    view = buffer[1:].view(a.dtype).reshape(a.shape)
    view[...] = a
    return view


def every_second(a, axis):
    shape = list(a.shape)
    shape[axis] *= 2
    index = [slice(None)] * a.ndim
    index[axis] = slice(None, None, 2)
    view = np.zeros(shape, a.dtype)[tuple(index)]
    view[...] = a
    return view


def reversed_memory(a, axis):
    return np.flip(np.flip(a, axis).copy(), axis)


LAYOUTS = {
    "fortran": np.asfortranarray,
    "unaligned": unaligned,
    "padded rows": lambda a: every_second(a, 0),
    "padded last axis": lambda a: every_second(a, -1),
    "negative rows": lambda a: reversed_memory(a, 0),
    "negative last axis": lambda a: reversed_memory(a, -1),
}

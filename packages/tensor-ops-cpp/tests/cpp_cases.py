"""Calls of every op, built from what tensor_ops says of its arguments."""

import ml_dtypes
import numpy as np

import tensor_ops_cpp
from tensor_ops.ops import OPS as MEANINGS
from tensor_ops.variants import named

DTYPES = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float64": np.dtype(np.float64),
}

OPS = tensor_ops_cpp.ops
# Every op with the keyword arguments that select each of its formulas.
OP_VARIANTS = [(op, dict(variant.options)) for op in OPS for variant in named(op)]


def with_argument(role):
    """Return the ops that have an argument of a role."""
    return [op for op in OPS if any(kind.role == role for kind in MEANINGS[op].kinds.values())]


def array_names(op):
    """Return the names of the op's arrays, in order."""
    return [name for name, kind in MEANINGS[op].kinds.items() if kind.is_array]


def full_names(op):
    """Return the names of the op's arrays that have the result's shape, in order."""
    return [name for name, kind in MEANINGS[op].kinds.items() if kind.is_full]


def arguments(op, shape, dtype, rng):
    """Random arrays for the op, x being of the shape given."""
    shapes = {
        "rows": shape,
        "elements": shape,
        "row_vector": shape[-1:],
        "half_rows": (*shape[:-1], shape[-1] // 2),
    }
    kinds = (MEANINGS[op].kinds[name] for name in array_names(op))
    return [rng.normal(size=shapes[kind.role]).astype(dtype) for kind in kinds]


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def as_out(outs):
    return tuple(outs) if len(outs) > 1 else outs[0]


def is_sum(op, like):
    """Return whether a result that is like an argument is a sum over all rows."""
    return not MEANINGS[op].kinds[like].is_full


def empty_outs(op, x):
    outs = tuple(
        np.empty(x.shape[-1:] if is_sum(op, like) else x.shape, x.dtype)
        for like in MEANINGS[op].results_like
    )
    return as_out(outs)


def rowwise(op, results):
    """Return the results that are not sums over all rows."""
    likes = zip(as_tuple(results), MEANINGS[op].results_like, strict=True)
    return tuple(result for result, like in likes if not is_sum(op, like))


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

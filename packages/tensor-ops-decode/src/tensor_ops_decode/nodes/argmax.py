"""argmax: the index of the largest element, if there is one."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import exact

__all__ = ["KIND", "largest"]


def compute(call: Call) -> Array:
    return largest(call.inputs["x"])


def largest(logits: Array) -> Array:
    """Return the index of the largest element as an array of one; -1 if none can be chosen."""
    index = np.argmax(logits, keepdims=True)  # of NaN, where there is one
    return np.where(logits[index] > -np.inf, index, -1).astype(np.int32)


KIND = Kind(
    name="argmax",
    meaning="the lowest index of the largest element; -1 if one is NaN or all are -inf",
    compute=compute,
    bound=exact,
    inputs=(Input("x", ""),),
    outputs=(Output("output", "1", dtype="int32"),),
    samples=(Sample("odd", {"x": 333}), Sample("one", {"x": 1})),
)

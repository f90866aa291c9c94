"""add: the sum of two values."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import of_magnitude

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    return call.inputs["a"] + call.inputs["b"]


def bound(call: Call, output: Array, activations: str) -> Array:
    return of_magnitude(np.abs(output), 1)


KIND = Kind(
    name="add",
    meaning="a + b",
    compute=compute,
    bound=bound,
    inputs=(Input("a", "H"), Input("b", "H")),
    outputs=(Output("output", "H"),),
    samples=(Sample("odd", {"a": 33, "b": 33}),),
)

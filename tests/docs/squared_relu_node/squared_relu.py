"""squared_relu: the square of what is positive, as between the projections of Primer."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import of_magnitude

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    return np.maximum(call.inputs["x"], 0) ** 2


def bound(call: Call, output: Array, activations: str) -> Array:
    return of_magnitude(output, 1)


KIND = Kind(
    name="squared_relu",
    meaning="max(x, 0)^2",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    samples=(Sample("odd", {"x": 33}), Sample("usual", {"x": 64})),
)

"""scale: a value times a number."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Attribute, Call, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import of_magnitude

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    return call.inputs["x"] * call.attributes["factor"]


def bound(call: Call, output: Array, activations: str) -> Array:
    return of_magnitude(np.abs(output), 2)  # of the factor and of the product


KIND = Kind(
    name="scale",
    meaning="factor * x",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    attributes=(Attribute("factor", float),),
    samples=(Sample("odd", {"x": 33}, attributes={"factor": -1.7}),),
)

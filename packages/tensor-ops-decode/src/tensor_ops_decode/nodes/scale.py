"""scale: a value times a number."""

import numpy as np

from tensor_ops_decode.node_kind import Array, Attribute, Call, Input, Kind, Sample, Shapes
from tensor_ops_decode.rounding import of_magnitude

__all__ = ["KIND"]


def columns(shapes: Shapes) -> int:
    return shapes.columns["x"]


def compute(call: Call) -> Array:
    return call.inputs["x"] * call.attributes["factor"]


def bound(call: Call, output: Array, activations: str) -> Array:
    return of_magnitude(np.abs(output), 2)  # of the factor and of the product


KIND = Kind(
    name="scale",
    meaning="factor * x",
    columns=columns,
    compute=compute,
    bound=bound,
    inputs=(Input("x"),),
    attributes=(Attribute("factor", float),),
    samples=(Sample("odd", {"x": 33}, attributes={"factor": -1.7}),),
)

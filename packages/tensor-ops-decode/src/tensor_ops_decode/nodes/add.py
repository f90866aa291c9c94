"""add: the sum of two values."""

import numpy as np

from tensor_ops_decode.node_kind import Array, Call, Input, Kind, Sample, Shapes
from tensor_ops_decode.rounding import of_magnitude

__all__ = ["KIND"]


def columns(shapes: Shapes) -> int:
    shapes.require("the columns of b", shapes.columns["b"], shapes.columns["a"])
    return shapes.columns["a"]


def compute(call: Call) -> Array:
    return call.inputs["a"] + call.inputs["b"]


def bound(call: Call, output: Array, activations: str) -> Array:
    return of_magnitude(np.abs(output), 1)


KIND = Kind(
    name="add",
    meaning="a + b",
    columns=columns,
    compute=compute,
    bound=bound,
    inputs=(Input("a"), Input("b")),
    samples=(Sample("odd", {"a": 33, "b": 33}),),
)

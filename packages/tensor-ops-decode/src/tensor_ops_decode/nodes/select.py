"""select: the rows whose logits are wanted."""

import numpy as np

from tensor_ops_decode.node_kind import Array, Call, Input, Kind, Sample, Shapes

__all__ = ["KIND"]


def columns(shapes: Shapes) -> int:
    return shapes.columns["x"]


def compute(call: Call) -> Array:
    return call.inputs["x"]


def bound(call: Call, output: Array, activations: str) -> Array:
    return np.zeros_like(output)


KIND = Kind(
    name="select",
    meaning="the rows of x that are selected",
    columns=columns,
    compute=compute,
    bound=bound,
    inputs=(Input("x"),),
    selects=True,
    samples=(Sample("rows", {"x": 33}),),
)

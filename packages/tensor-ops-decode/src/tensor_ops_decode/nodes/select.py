"""select: the rows whose logits are wanted."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    return call.inputs["x"]


def bound(call: Call, output: Array, activations: str) -> Array:
    return np.zeros_like(output)


KIND = Kind(
    name="select",
    meaning="the rows of x that are selected",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    selects=True,
    samples=(Sample("rows", {"x": 33}),),
)

"""allreduce: the sum of a value over all ranks."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    return call.inputs["x"]  # of one rank


def bound(call: Call, output: Array, activations: str) -> Array:
    return np.zeros_like(output)


KIND = Kind(
    name="allreduce",
    meaning="the sum of x over the ranks",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    samples=(Sample("one rank", {"x": 33}),),
)

"""argmax: the index of the largest element."""

import numpy as np

from tensor_ops_decode.node_kind import Array, Call, Input, Kind, Sample, Shapes

__all__ = ["KIND"]


def columns(shapes: Shapes) -> int:
    return 1


def compute(call: Call) -> Array:
    return np.argmax(call.inputs["x"], keepdims=True).astype(np.int32)


def bound(call: Call, output: Array, activations: str) -> Array:
    return np.zeros(output.shape)


KIND = Kind(
    name="argmax",
    meaning="the lowest index of the largest element; NaN is the largest",
    columns=columns,
    compute=compute,
    bound=bound,
    inputs=(Input("x"),),
    output_dtype="int32",
    samples=(Sample("odd", {"x": 333}), Sample("one", {"x": 1})),
)

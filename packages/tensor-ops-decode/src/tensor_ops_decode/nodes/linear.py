"""linear: a product with weights, plus bias and residual."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample, Weight
from tensor_ops_decode.kinds.rounding import dot_bound, of_magnitude

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    output = call.weights["weight"] @ call.inputs["x"]
    for added in (call.weights.get("bias"), call.inputs.get("residual")):
        if added is not None:
            output = output + added
    return output


def bound(call: Call, output: Array, activations: str) -> Array:
    bound = dot_bound(call.inputs["x"], call.weights["weight"], activations)
    for added in (call.weights.get("bias"), call.inputs.get("residual")):
        if added is not None:
            bound += of_magnitude(np.abs(added), 3)
    return bound


KIND = Kind(
    name="linear",
    meaning="x @ weight.T + bias + residual",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "K"), Input("residual", "N", optional=True)),
    outputs=(Output("output", "N"),),
    weights=(
        Weight("weight", "matrices", "N", "K"),
        Weight("bias", "biases", "N", of="weight", optional=True),
    ),
    samples=(
        Sample("one matrix", {"x": 64}, {"weight": [(48, 64)]}),
        Sample("rows that fill no tile", {"x": 96}, {"weight": [(7, 96)]}),
        Sample("long rows", {"x": 2048}, {"weight": [(33, 2048)]}),
        Sample(
            "three matrices with biases",
            {"x": 64},
            {"weight": [(16, 64), (5, 64), (24, 64)], "bias": [(16,), (5,), (24,)]},
        ),
        Sample("residual", {"x": 128, "residual": 40}, {"weight": [(40, 128)]}),
        Sample("odd columns", {"x": 45}, {"weight": [(19, 45)]}),
    ),
)

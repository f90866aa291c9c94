"""silu_mul_linear_with_residual: the second half of a gated MLP and what it is added to."""

import numpy as np

from tensor_ops.extension import OPS
from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample, Weight
from tensor_ops_decode.kinds.rounding import dot_bound, of_magnitude

__all__ = ["KIND"]


def activated(call: Call) -> Array:
    return OPS["silu_mul"].numpy(*np.split(call.inputs["x"], 2))


def compute(call: Call) -> Array:
    output = call.weights["weight"] @ activated(call)
    if "bias" in call.weights:
        output = output + call.weights["bias"]
    return output + call.inputs["residual"]


def bound(call: Call, output: Array, activations: str) -> Array:
    x = activated(call)
    bound = dot_bound(x, call.weights["weight"], activations, of_magnitude(np.abs(x), 6))
    for added in (call.weights.get("bias"), call.inputs["residual"]):
        if added is not None:
            bound += of_magnitude(np.abs(added), 3)
    return bound


KIND = Kind(
    name="silu_mul_linear_with_residual",
    meaning="silu_mul(x) @ weight.T + bias + residual",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "2F"), Input("residual", "N")),
    outputs=(Output("output", "N"),),
    weights=(
        Weight("weight", "matrices", "N", "F"),
        Weight("bias", "biases", "N", of="weight", optional=True),
    ),
    samples=(
        Sample("usual", {"x": 192, "residual": 40}, {"weight": [(40, 96)]}),
        Sample("bias", {"x": 128, "residual": 7}, {"weight": [(7, 64)], "bias": [(7,)]}),
    ),
)

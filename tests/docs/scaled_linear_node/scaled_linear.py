"""scaled_linear: a product with weights times a number, plus bias, as of weights with one scale."""

import numpy as np

from tensor_ops_decode.kinds.kind import (
    Array,
    Attribute,
    Call,
    Input,
    Kind,
    Output,
    Sample,
    Weight,
)
from tensor_ops_decode.kinds.rounding import dot_bound, of_magnitude

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    scaled = call.attributes["factor"] * (call.weights["weight"] @ call.inputs["x"])
    return scaled + call.weights.get("bias", 0)


def bound(call: Call, output: Array, activations: str) -> Array:
    factor = abs(call.attributes["factor"])
    of_sum = factor * dot_bound(call.inputs["x"], call.weights["weight"], activations)
    return of_sum + of_magnitude(np.abs(output) + np.abs(call.weights.get("bias", 0)), 4)


KIND = Kind(
    name="scaled_linear",
    meaning="factor * x @ weight.T + bias",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "K"),),
    outputs=(Output("output", "N"),),
    weights=(
        Weight("weight", "matrices", "N", "K"),
        Weight("bias", "biases", "N", of="weight", optional=True),
    ),
    attributes=(Attribute("factor", float),),
    role="product",
    samples=(
        Sample("usual", {"x": 64}, {"weight": [(48, 64)]}, {"factor": -0.7}),
        Sample("bias", {"x": 96}, {"weight": [(7, 96)], "bias": [(7,)]}, {"factor": 3.0}),
    ),
)

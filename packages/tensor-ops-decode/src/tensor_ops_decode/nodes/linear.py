"""linear: a product with weights, plus biases."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample, Weight
from tensor_ops_decode.kinds.rounding import dot_bound, of_magnitude

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    product = call.weights["weight"] @ call.inputs["x"]
    return product + call.weights["bias"] if "bias" in call.weights else product


def bound(call: Call, output: Array, activations: str) -> Array:
    of_product = dot_bound(call.inputs["x"], call.weights["weight"], activations)
    if "bias" not in call.weights:
        return of_product
    return of_product + of_magnitude(np.abs(call.weights["bias"]), 3)


KIND = Kind(
    name="linear",
    meaning="x @ weight.T + bias",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "K"),),
    outputs=(Output("output", "N"),),
    weights=(
        Weight("weight", "matrices", "N", "K"),
        Weight("bias", "biases", "N", of="weight", optional=True),
    ),
    role="product",
    samples=(
        Sample("one matrix", {"x": 64}, {"weight": [(48, 64)]}),
        Sample("rows that fill no tile", {"x": 96}, {"weight": [(7, 96)]}),
        Sample("long rows", {"x": 2048}, {"weight": [(33, 2048)]}),
        Sample(
            "three matrices with biases",
            {"x": 64},
            {"weight": [(16, 64), (5, 64), (24, 64)], "bias": [(16,), (5,), (24,)]},
        ),
        Sample("odd columns", {"x": 45}, {"weight": [(19, 45)]}),
    ),
)

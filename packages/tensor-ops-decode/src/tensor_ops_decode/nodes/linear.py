"""linear: a product with weights, plus bias and residual."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample, Weight
from tensor_ops_decode.kinds.rounding import dot_bound, of_magnitude

__all__ = ["KIND", "product", "product_bound"]


def compute(call: Call) -> Array:
    return product(call, call.inputs["x"])


def bound(call: Call, output: Array, activations: str) -> Array:
    return product_bound(call, call.inputs["x"], activations)


def product(call: Call, x: Array) -> Array:
    """Return the product of `x` with the weights, plus what is added to it."""
    output = call.weights["weight"] @ x
    for added in _added(call):
        output = output + added
    return output


def product_bound(
    call: Call, x: Array, activations: str, x_error: Array | float = 0.0, roundings: float = 3
) -> Array:
    """Return the bound of a product; each addition is off by so many roundings of what is added."""
    bound = dot_bound(x, call.weights["weight"], activations, x_error)
    for added in _added(call):
        bound += of_magnitude(np.abs(added), roundings)
    return bound


def _added(call: Call) -> list[Array]:
    given = (call.weights.get("bias"), call.inputs.get("residual"))
    return [each for each in given if each is not None]


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
        Sample("residual", {"x": 128, "residual": 40}, {"weight": [(40, 128)]}),
        Sample("odd columns", {"x": 45}, {"weight": [(19, 45)]}),
    ),
)

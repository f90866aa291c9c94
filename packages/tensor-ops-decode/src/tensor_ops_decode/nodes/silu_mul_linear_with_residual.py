"""silu_mul_linear_with_residual: the second half of a gated MLP and what it is added to."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample, Weight
from tensor_ops_decode.kinds.rounding import of_magnitude
from tensor_ops_decode.nodes.linear import product, product_bound
from tensor_ops_decode.nodes.silu_mul import compute as silu_mul

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    return product(call, silu_mul(call))


def bound(call: Call, output: Array, activations: str) -> Array:
    x = silu_mul(call)
    return product_bound(call, x, activations, of_magnitude(np.abs(x), 6))


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

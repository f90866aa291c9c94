"""rms_norm_linear: rms_norm, then a product with weights."""

import numpy as np

from tensor_ops.extension import OPS
from tensor_ops_decode.kinds.kind import Array, Attribute, Call, Input, Kind, Output, Sample, Weight
from tensor_ops_decode.kinds.rounding import of_magnitude
from tensor_ops_decode.nodes.linear import product, product_bound

__all__ = ["KIND"]


def normalised(call: Call) -> Array:
    return OPS["rms_norm"].numpy(call.inputs["x"], call.weights["norm"], call.attributes["eps"])


def compute(call: Call) -> Array:
    return product(call, normalised(call))


def bound(call: Call, output: Array, activations: str) -> Array:
    x = normalised(call)
    return product_bound(call, x, activations, of_magnitude(np.abs(x), 6), roundings=2)


KIND = Kind(
    name="rms_norm_linear",
    meaning="rms_norm(x, norm, eps) @ weight.T + bias",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "K"),),
    outputs=(Output("output", "N"),),
    weights=(
        Weight("norm", "vector", "K"),
        Weight("weight", "matrices", "N", "K"),
        Weight("bias", "biases", "N", of="weight", optional=True),
    ),
    attributes=(Attribute("eps", float, least=0),),
    samples=(
        Sample("usual", {"x": 64}, {"norm": [(64,)], "weight": [(48, 64)]}, {"eps": 1e-5}),
        Sample(
            "two matrices with biases",
            {"x": 96},
            {"norm": [(96,)], "weight": [(40, 96), (9, 96)], "bias": [(40,), (9,)]},
            {"eps": 1e-6},
        ),
    ),
)

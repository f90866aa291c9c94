"""layer_norm: a row without its mean, scaled to a variance of one, then by a weight."""

import numpy as np

from tensor_ops.extension import OPS
from tensor_ops_decode.kinds.kind import Array, Attribute, Call, Input, Kind, Output, Sample, Weight
from tensor_ops_decode.kinds.rounding import of_magnitude

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    weights = call.weights
    return OPS["layer_norm"].numpy(
        call.inputs["x"], weights["weight"], weights.get("bias"), call.attributes["eps"]
    )


def bound(call: Call, output: Array, activations: str) -> Array:
    # The mean, whose error depends on all elements, is taken off each of them.
    x = call.inputs["x"]
    scale = np.abs(call.weights["weight"]) / np.sqrt(x.var() + call.attributes["eps"])
    bias = np.abs(call.weights.get("bias", np.zeros_like(output)))
    return of_magnitude(scale * (np.abs(x) + np.abs(x).mean()) + bias, 6)


KIND = Kind(
    name="layer_norm",
    meaning="(x - mean(x)) / sqrt(var(x) + eps) * weight + bias",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    weights=(Weight("weight", "vector", "H"), Weight("bias", "vector", "H", optional=True)),
    attributes=(Attribute("eps", float, least=0),),
    role="norm",
    samples=(
        Sample("usual", {"x": 384}, {"weight": [(384,)], "bias": [(384,)]}, {"eps": 1e-5}),
        Sample("without bias", {"x": 13}, {"weight": [(13,)]}, {"eps": 1e-2}),
    ),
)

"""rms_norm: a row scaled to a root mean square of one, then by a weight."""

import numpy as np

from tensor_ops.extension import OPS
from tensor_ops_decode.kinds.kind import Array, Attribute, Call, Input, Kind, Output, Sample, Weight
from tensor_ops_decode.kinds.rounding import of_magnitude

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    return OPS["rms_norm"].numpy(call.inputs["x"], call.weights["weight"], call.attributes["eps"])


def bound(call: Call, output: Array, activations: str) -> Array:
    return of_magnitude(np.abs(output), 6)


KIND = Kind(
    name="rms_norm",
    meaning="x * weight / sqrt(mean(x^2) + eps)",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    weights=(Weight("weight", "vector", "H"),),
    attributes=(Attribute("eps", float, least=0),),
    samples=(
        Sample("usual", {"x": 576}, {"weight": [(576,)]}, {"eps": 1e-5}),
        Sample("odd", {"x": 13}, {"weight": [(13,)]}, {"eps": 1e-2}),
    ),
)

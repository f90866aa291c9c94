"""combine: the weighted sum of what the chosen experts give."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import of_magnitude

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    weights = call.inputs["weights"]
    return weights @ call.inputs["x"].reshape(len(weights), -1)


def bound(call: Call, output: Array, activations: str) -> Array:
    weights = np.abs(call.inputs["weights"])
    magnitude = weights @ np.abs(call.inputs["x"]).reshape(len(weights), -1)
    return of_magnitude(magnitude, len(weights) + 1)


KIND = Kind(
    name="combine",
    meaning="sum(weights[k] * x[k]), of as many parts of x",
    compute=compute,
    bound=bound,
    inputs=(Input("weights", "K"), Input("x", "KH")),
    outputs=(Output("output", "H"),),
    samples=(
        Sample("eight", {"weights": 8, "x": 8 * 64}),
        Sample("odd", {"weights": 3, "x": 3 * 37}),
        Sample("one", {"weights": 1, "x": 5}),
    ),
)

"""sigmoid_mul: a value times the sigmoid of a gate."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import bound_of

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    with np.errstate(over="ignore"):
        return call.inputs["x"] / (1 + np.exp(-call.inputs["gate"]))


KIND = Kind(
    name="sigmoid_mul",
    meaning="x * sigmoid(gate)",
    compute=compute,
    bound=bound_of(6),
    inputs=(Input("x", "H"), Input("gate", "H")),
    outputs=(Output("output", "H"),),
    samples=(
        Sample("usual", {"x": 256, "gate": 256}),
        Sample("odd", {"x": 33, "gate": 33}),
    ),
)

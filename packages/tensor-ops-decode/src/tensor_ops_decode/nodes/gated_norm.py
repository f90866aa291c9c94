"""gated_norm: rms_norm of each head, times silu of a gate."""

import numpy as np

from tensor_ops.extension import OPS
from tensor_ops_decode.kinds.kind import (
    Array,
    Attribute,
    Call,
    Input,
    Kind,
    Output,
    Relation,
    Sample,
    Weight,
)
from tensor_ops_decode.kinds.rounding import bound_of

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    weight, gate = call.weights["weight"], call.inputs["gate"]
    heads = call.inputs["x"].reshape(-1, len(weight))
    normed = OPS["rms_norm"].numpy(heads, weight, call.attributes["eps"]).reshape(-1)
    with np.errstate(over="ignore"):
        return normed * (gate / (1 + np.exp(-gate)))


KIND = Kind(
    name="gated_norm",
    meaning="rms_norm of each head of x, times silu(gate)",
    compute=compute,
    bound=bound_of(12),
    inputs=(Input("x", "H"), Input("gate", "H")),
    outputs=(Output("output", "H"),),
    weights=(Weight("weight", "vector", "D"),),
    attributes=(Attribute("eps", float, least=0),),
    relations=(Relation("H", "a multiple of", "D"),),
    samples=(
        Sample("usual", {"x": 256, "gate": 256}, {"weight": [(64,)]}, {"eps": 1e-6}),
        Sample("odd", {"x": 39, "gate": 39}, {"weight": [(13,)]}, {"eps": 1e-2}),
    ),
)

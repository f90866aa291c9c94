"""gated_group_norm: rms_norm of each group of columns that a gate has multiplied."""

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
    gate, size = call.inputs["gate"], call.attributes["group_size"]
    with np.errstate(over="ignore"):
        groups = (call.inputs["x"] * (gate / (1 + np.exp(-gate)))).reshape(-1, size)
    ones = np.ones(size, groups.dtype)
    normed = OPS["rms_norm"].numpy(groups, ones, call.attributes["eps"]).reshape(-1)
    return normed * call.weights["weight"]


def _sample(name: str, columns: int, size: int, eps: float) -> Sample:
    inputs = {"x": columns, "gate": columns}
    return Sample(name, inputs, {"weight": [(columns,)]}, {"group_size": size, "eps": eps})


KIND = Kind(
    name="gated_group_norm",
    meaning="rms_norm of each group of x * silu(gate), times weight",
    compute=compute,
    bound=bound_of(14),
    inputs=(Input("x", "C"), Input("gate", "C")),
    outputs=(Output("output", "C"),),
    weights=(Weight("weight", "vector", "C"),),
    attributes=(
        Attribute("group_size", int, least=1, letter="D"),
        Attribute("eps", float, least=0),
    ),
    relations=(Relation("C", "a multiple of", "D"),),
    samples=(
        _sample("usual", 512, 512, 1e-5),
        _sample("odd", 39, 13, 1e-2),
    ),
)

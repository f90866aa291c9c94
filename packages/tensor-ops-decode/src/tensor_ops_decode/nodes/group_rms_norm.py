"""group_rms_norm: groups of columns, each scaled to a root mean square of one, then by a weight."""

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
    weight = call.weights["weight"]
    groups = call.inputs["x"].reshape(-1, len(weight))
    return OPS["rms_norm"].numpy(groups, weight, call.attributes["eps"]).reshape(-1)


KIND = Kind(
    name="group_rms_norm",
    meaning="rms_norm of each group of as many columns of x as the weight has",
    compute=compute,
    bound=bound_of(6),
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    weights=(Weight("weight", "vector", "D"),),
    attributes=(Attribute("eps", float, least=0),),
    relations=(Relation("H", "a multiple of", "D"),),
    samples=(
        Sample("usual", {"x": 5 * 64}, {"weight": [(64,)]}, {"eps": 1e-6}),
        Sample("odd", {"x": 3 * 13}, {"weight": [(13,)]}, {"eps": 1e-2}),
        Sample("one group", {"x": 24}, {"weight": [(24,)]}, {"eps": 1e-5}),
    ),
)

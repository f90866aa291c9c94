"""swiglu_clamped: a gate and its values, both clamped, as gpt-oss has them."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Attribute, Call, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import bound_of

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    limit, alpha = (call.inputs["x"].dtype.type(call.attributes[n]) for n in ("limit", "alpha"))
    gate, up = np.split(call.inputs["x"], 2)
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    with np.errstate(over="ignore"):
        return (up + 1) * gate / (1 + np.exp(-alpha * gate))


KIND = Kind(
    name="swiglu_clamped",
    meaning="(clip(up, -limit, limit) + 1) * g * sigmoid(alpha * g), g = min(gate, limit), "
    "of the halves of x",
    compute=compute,
    bound=bound_of(24),  # the rounding of alpha * g counts as often as that is large
    inputs=(Input("x", "2F"),),
    outputs=(Output("output", "F"),),
    attributes=(Attribute("limit", float, least=0), Attribute("alpha", float, least=2.0**-20)),
    role="gate",
    samples=(
        Sample("usual", {"x": 128}, attributes={"limit": 7.0, "alpha": 1.702}),
        Sample("odd", {"x": 26}, attributes={"limit": 0.5, "alpha": 1.0}),
    ),
)

"""soft_cap: a value kept within a range by tanh."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Attribute, Call, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import bound_of

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    cap = call.attributes["cap"]
    return cap * np.tanh(call.inputs["x"] / cap)


KIND = Kind(
    name="soft_cap",
    meaning="cap * tanh(x / cap)",
    compute=compute,
    bound=bound_of(8),
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    attributes=(Attribute("cap", float, least=2.0**-20),),
    role="elementwise",
    samples=(
        Sample("odd", {"x": 33}, attributes={"cap": 1.5}),
        Sample("usual", {"x": 64}, attributes={"cap": 30.0}),
    ),
)

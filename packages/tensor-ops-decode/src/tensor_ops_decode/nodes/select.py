"""select: the rows whose logits are wanted."""

from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import exact

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    return call.inputs["x"]


KIND = Kind(
    name="select",
    meaning="the rows of x that are selected",
    compute=compute,
    bound=exact,
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    selects=True,
    samples=(Sample("rows", {"x": 33}),),
)

"""select: the rows whose logits are wanted."""

from tensor_ops_decode.kinds.kind import Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import exact

__all__ = ["KIND"]

KIND = Kind(
    name="select",
    meaning="the rows of x that are selected",
    compute=lambda call: call.inputs["x"],
    bound=exact,
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    selects=True,
    samples=(Sample("rows", {"x": 33}),),
)

"""scale: a value times a number."""

from tensor_ops_decode.kinds.kind import Array, Attribute, Call, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import bound_of

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    return call.inputs["x"] * call.attributes["factor"]


KIND = Kind(
    name="scale",
    meaning="factor * x",
    compute=compute,
    bound=bound_of(2),  # of the factor and of the product
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    attributes=(Attribute("factor", float),),
    samples=(Sample("odd", {"x": 33}, attributes={"factor": -1.7}),),
)

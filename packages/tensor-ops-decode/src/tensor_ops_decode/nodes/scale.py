"""scale: a value times a number."""

from tensor_ops_decode.kinds.kind import Attribute, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import bound_of

__all__ = ["KIND"]

KIND = Kind(
    name="scale",
    meaning="factor * x",
    compute=lambda call: call.inputs["x"] * call.attributes["factor"],
    bound=bound_of(2),  # of the factor and of the product
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    attributes=(Attribute("factor", float),),
    role="elementwise",
    samples=(Sample("odd", {"x": 33}, attributes={"factor": -1.7}),),
)

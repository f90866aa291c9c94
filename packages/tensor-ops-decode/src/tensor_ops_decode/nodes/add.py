"""add: the sum of two values."""

from tensor_ops_decode.kinds.kind import Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import bound_of

__all__ = ["KIND"]

KIND = Kind(
    name="add",
    meaning="a + b",
    compute=lambda call: call.inputs["a"] + call.inputs["b"],
    bound=bound_of(1),
    inputs=(Input("a", "H"), Input("b", "H")),
    outputs=(Output("output", "H"),),
    role="sum",
    samples=(Sample("odd", {"a": 33, "b": 33}),),
)

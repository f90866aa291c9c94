"""allreduce: the sum of a value over all ranks."""

from tensor_ops_decode.kinds.kind import Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import exact

__all__ = ["KIND"]

KIND = Kind(
    name="allreduce",
    meaning="the sum of x over the ranks",
    compute=lambda call: call.inputs["x"],  # of one rank
    bound=exact,
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    samples=(Sample("one rank", {"x": 33}),),
)

"""allreduce: the sum of a value over all ranks."""

from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import exact

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    return call.inputs["x"]  # of one rank


KIND = Kind(
    name="allreduce",
    meaning="the sum of x over the ranks",
    compute=compute,
    bound=exact,
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    samples=(Sample("one rank", {"x": 33}),),
)

"""allreduce: the sum of a value over all ranks."""

import functools

import numpy as np

from tensor_ops_decode.kinds.kind import Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import exact

__all__ = ["KIND"]

KIND = Kind(
    name="allreduce",
    meaning="the sum of x over the ranks, added in their order",
    compute=lambda call: functools.reduce(np.add, call.exchange(call.inputs["x"])),
    bound=exact,  # of one rank
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    exchanges=True,
    samples=(Sample("one rank", {"x": 33}),),
)

"""silu_mul: silu of the first half of a row times its second half."""

import numpy as np

from tensor_ops.extension import OPS
from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import of_magnitude

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    return OPS["silu_mul"].numpy(*np.split(call.inputs["x"], 2))


def bound(call: Call, output: Array, activations: str) -> Array:
    return of_magnitude(np.abs(output), 6)


KIND = Kind(
    name="silu_mul",
    meaning="silu(gate) * up, of the halves of x",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "2F"),),
    outputs=(Output("output", "F"),),
    samples=(Sample("usual", {"x": 128}), Sample("odd", {"x": 26})),
)

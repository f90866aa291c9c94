"""silu_mul: silu of the first half of a row times its second half."""

import numpy as np

from tensor_ops.extension import OPS
from tensor_ops_decode.kinds.kind import Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import bound_of

__all__ = ["KIND"]

KIND = Kind(
    name="silu_mul",
    meaning="silu(gate) * up, of the halves of x",
    compute=lambda call: OPS["silu_mul"].numpy(*np.split(call.inputs["x"], 2)),
    bound=bound_of(6),
    inputs=(Input("x", "2F"),),
    outputs=(Output("output", "F"),),
    role="gate",
    samples=(Sample("usual", {"x": 128}), Sample("odd", {"x": 26})),
)

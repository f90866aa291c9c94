"""gelu_mul: gelu of the first half of a row times its second half."""

import numpy as np

from tensor_ops.extension import OPS
from tensor_ops_decode.kinds.kind import Attribute, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import bound_of

__all__ = ["KIND"]

KIND = Kind(
    name="gelu_mul",
    meaning="gelu(gate) * up, of the halves of x",
    compute=lambda call: OPS["gelu_mul"].numpy(
        *np.split(call.inputs["x"], 2), call.attributes["approximate"]
    ),
    bound=bound_of(8),
    inputs=(Input("x", "2F"),),
    outputs=(Output("output", "F"),),
    attributes=(Attribute("approximate", str, choices=("tanh", "none")),),
    role="gate",
    samples=(
        Sample("tanh", {"x": 128}, attributes={"approximate": "tanh"}),
        Sample("exact", {"x": 26}, attributes={"approximate": "none"}),
    ),
)

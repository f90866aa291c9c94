"""rms_norm: a row scaled to a root mean square of one, then by a weight."""

from tensor_ops.extension import OPS
from tensor_ops_decode.kinds.kind import Attribute, Input, Kind, Output, Sample, Weight
from tensor_ops_decode.kinds.rounding import bound_of

__all__ = ["KIND"]

KIND = Kind(
    name="rms_norm",
    meaning="x * weight / sqrt(mean(x^2) + eps)",
    compute=lambda call: OPS["rms_norm"].numpy(
        call.inputs["x"], call.weights["weight"], call.attributes["eps"]
    ),
    bound=bound_of(6),
    inputs=(Input("x", "H"),),
    outputs=(Output("output", "H"),),
    weights=(Weight("weight", "vector", "H"),),
    attributes=(Attribute("eps", float, least=0),),
    role="norm",
    samples=(
        Sample("usual", {"x": 576}, {"weight": [(576,)]}, {"eps": 1e-5}),
        Sample("odd", {"x": 13}, {"weight": [(13,)]}, {"eps": 1e-2}),
    ),
)

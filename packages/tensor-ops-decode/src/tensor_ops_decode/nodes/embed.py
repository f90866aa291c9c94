"""embed: the row of a table that a token names."""

from tensor_ops_decode.kinds.kind import Input, Kind, Output, Sample, Weight
from tensor_ops_decode.kinds.rounding import exact

__all__ = ["KIND"]

KIND = Kind(
    name="embed",
    meaning="weight[token]",
    compute=lambda call: call.weights["weight"][int(call.inputs["tokens"][0])],
    bound=exact,  # a copy; every supported format is exact in float32
    inputs=(Input("tokens", "1", dtype="int32", below="V"),),
    outputs=(Output("output", "H"),),
    weights=(Weight("weight", "lookup", "V", "H", chosen_by="tokens"),),
    samples=(
        Sample("one block", {"tokens": 1}, {"weight": [(5, 32)]}),
        Sample("several", {"tokens": 1}, {"weight": [(33, 160)]}),
        Sample("rows of 256", {"tokens": 1}, {"weight": [(9, 512)]}),
    ),
)

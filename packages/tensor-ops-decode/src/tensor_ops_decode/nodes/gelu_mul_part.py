"""gelu_mul_part: gelu of a value times one of the parts of another."""

from tensor_ops.extension import OPS
from tensor_ops_decode.kinds.kind import (
    Array,
    Attribute,
    Call,
    Input,
    Kind,
    Output,
    Relation,
    Sample,
)
from tensor_ops_decode.kinds.rounding import bound_of

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    gate, end = call.inputs["gate"], call.attributes["part"] * len(call.inputs["gate"])
    part = call.inputs["x"][end - len(gate) : end]
    return OPS["gelu_mul"].numpy(gate, part, call.attributes["approximate"])


KIND = Kind(
    name="gelu_mul_part",
    meaning="gelu(gate) * part, of the parts of x, which are as long as the gate",
    compute=compute,
    bound=bound_of(8),
    inputs=(Input("gate", "F"), Input("x", "H")),
    outputs=(Output("output", "F"),),
    attributes=(
        Attribute("part", int, least=1, letter="I"),  # the first one is 1
        Attribute("approximate", str, choices=("tanh", "none")),
    ),
    relations=(Relation("H", "a multiple of", "F"), Relation("H", "at least", "IF")),
    samples=(
        Sample("first", {"gate": 64, "x": 192}, attributes={"part": 1, "approximate": "tanh"}),
        Sample("last", {"gate": 13, "x": 65}, attributes={"part": 5, "approximate": "none"}),
        Sample("one", {"gate": 5, "x": 5}, attributes={"part": 1, "approximate": "tanh"}),
    ),
)

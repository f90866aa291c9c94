"""head_linear: of each head, the product of a part of its row with a matrix of its own."""

import numpy as np

from tensor_ops_decode.kinds.kind import (
    Array,
    Attribute,
    Call,
    Input,
    Kind,
    Output,
    Relation,
    Sample,
    Weight,
)
from tensor_ops_decode.kinds.rounding import dot_bound

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    return np.concatenate([weight @ x for weight, x in _heads(call)])


def bound(call: Call, output: Array, activations: str) -> Array:
    return np.concatenate([dot_bound(x, weight, activations) for weight, x in _heads(call)])


def _heads(call: Call) -> list[tuple[Array, Array]]:
    """Return the matrix of each head, and what it multiplies."""
    weight = call.weights["weight"]
    rows = call.inputs["x"].reshape(len(weight), -1)[:, : weight.shape[2]]
    return list(zip(weight, rows, strict=True))


def _sample(name: str, heads: int, rows: int, columns: int, behind: int = 0) -> Sample:
    x, weight = heads * (columns + behind), [(heads, rows, columns)]
    return Sample(name, {"x": x}, {"weight": weight}, {"num_heads": heads})


KIND = Kind(
    name="head_linear",
    meaning="weight[h] @ the first columns of part h of x, of each head h",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "HS"),),
    outputs=(Output("output", "HN"),),
    weights=(Weight("weight", "stack", "N", "C", "H"),),
    attributes=(Attribute("num_heads", int, least=1, letter="H"),),
    relations=(Relation("S", "at least", "C"),),
    role="product",
    samples=(
        _sample("parts that are read whole", 4, 32, 64),
        _sample("the beginnings of parts", 5, 48, 64, 32),
        _sample("rows that fill no tile", 3, 7, 96, 5),
        _sample("one head", 1, 19, 45, 3),
        _sample("long rows", 2, 33, 2048),
    ),
)

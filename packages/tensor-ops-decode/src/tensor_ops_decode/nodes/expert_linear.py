"""expert_linear: the products of a token with the matrices of the experts chosen for it."""

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
from tensor_ops_decode.kinds.rounding import dot_bound, of_magnitude

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    weight, chosen = call.weights["weight"], call.inputs["chosen"]
    products = np.stack([weight[e] @ x for e, x in zip(chosen, _inputs(call), strict=True)])
    if "bias" in call.weights:
        products += call.weights["bias"][chosen]
    return _in_parts(call, products)


def _inputs(call: Call) -> Array:
    """Return the input of each chosen expert, one a row."""
    parts = call.inputs["x"].reshape(call.attributes["input_parts"], -1)
    return parts.repeat(len(call.inputs["chosen"]) // len(parts), axis=0)


def _in_parts(call: Call, rows: Array) -> Array:
    """Return rows of the chosen experts as the output: the first part of all, then the second."""
    parts = call.attributes["output_parts"]
    return rows.reshape(len(rows), parts, -1).swapaxes(0, 1).reshape(-1)


def bound(call: Call, output: Array, activations: str) -> Array:
    weight, chosen = call.weights["weight"], call.inputs["chosen"]
    rows = zip(chosen, _inputs(call), strict=True)
    bounds = np.stack([dot_bound(x, weight[e], activations) for e, x in rows])
    if "bias" in call.weights:
        bounds += of_magnitude(np.abs(call.weights["bias"][chosen]), 3)
    return _in_parts(call, bounds)


def _sample(
    name: str, sizes: tuple[int, int, int], *stacks: int, bias: bool = False, **given: int
) -> Sample:
    experts, chosen, columns = sizes
    weights: dict[str, list[tuple[int, ...]]]
    weights = {"weight": [(experts, rows, columns) for rows in stacks]}
    if bias:
        weights["bias"] = [(experts, rows) for rows in stacks]
    attributes = {"num_experts": experts, "input_parts": 1, "output_parts": 1} | given
    x = columns * attributes["input_parts"]
    return Sample(name, {"x": x, "chosen": chosen}, weights, attributes)


KIND = Kind(
    name="expert_linear",
    meaning="weight[e] @ x + bias[e] for each chosen expert e, or for each its part of x",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "SC"), Input("chosen", "K", "int32", below="E")),
    outputs=(Output("output", "KN"),),
    weights=(
        Weight("weight", "stack", "N", "C", "E", chosen_by="chosen"),
        Weight("bias", "stack_biases", "E", "N", of="weight", optional=True),
    ),
    attributes=(
        Attribute("num_experts", int, least=1, letter="E"),
        Attribute("input_parts", int, least=1, letter="S"),
        Attribute("output_parts", int, least=1, letter="G"),
    ),
    relations=(Relation("K", "a multiple of", "S"), Relation("N", "a multiple of", "G")),
    role="product",
    samples=(
        _sample("gate and up", (6, 3, 64), 24, 24, output_parts=2),
        _sample("gate above up", (5, 2, 96), 34, output_parts=2, bias=True),
        _sample("down", (7, 4, 64), 48, input_parts=4),
        _sample("biases", (4, 4, 256), 33, 7, input_parts=2, bias=True),
        _sample("one expert", (1, 1, 45), 19),
    ),
)

"""Kinds of nodes that no model has yet: what a declaration can say beyond those of the models."""

import numpy as np

from tensor_ops_decode.kinds.kind import (
    Attribute,
    Input,
    KeysAndValues,
    Kind,
    Output,
    StatePerRequest,
    Weight,
)
from tensor_ops_decode.kinds.rounding import of_magnitude

__all__ = ["GENERAL_KINDS"]


def bound(call, output, activations):
    outputs = output if isinstance(output, tuple) else (output,)
    bounds = tuple(of_magnitude(np.abs(each), 64) for each in outputs)
    return bounds if isinstance(output, tuple) else bounds[0]


def largest_two(call):
    order = np.argsort(-call.inputs["x"], kind="stable")[:2]
    return call.inputs["x"][order], order.astype(np.int32)


def chosen_columns(call):
    return call.inputs["x"][call.inputs["numbers"]]


def chosen_linear(call):
    return (call.weights["weight"][call.inputs["numbers"]] @ call.inputs["x"]).reshape(-1)


def two_products(call):
    weights, x = call.weights, call.inputs["x"]
    gate, up = weights["gate"] @ x, weights["up"] @ x
    return (gate + weights.get("gate_bias", 0)) * (up + weights.get("up_bias", 0))


def attention_of_sizes(call):
    heads, keys, values = (call.attributes[name] for name in ("heads", "keys", "values"))
    parts = np.split(call.inputs["qkv"], (heads * keys, 2 * heads * keys))
    query, key, value = (part.reshape(heads, -1) for part in parts)
    kept_keys, kept_values = call.store(key, value)
    scores = np.einsum("hd,nhd->hn", query, kept_keys)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return np.einsum("hn,nhd->hd", p, kept_values).reshape(heads * values)


def sum_of_products(call):
    rows = call.attributes["rows"]
    query, key, value = np.split(call.inputs["qkv"], (rows, 2 * rows))
    state = call.state + np.outer(key, value)
    call.keep(state)
    return query @ state


#: By name.
GENERAL_KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "largest_two",
            "the two largest elements, and where they are",
            largest_two,
            bound,
            inputs=(Input("x", "K"),),
            outputs=(Output("elements", "2"), Output("numbers", "2", "int32", below="K")),
        ),
        Kind(
            "chosen_columns",
            "x[numbers]",
            chosen_columns,
            bound,
            inputs=(Input("x", "K"), Input("numbers", "M", "int32", below="K")),
            outputs=(Output("output", "M"),),
        ),
        Kind(
            "chosen_linear",
            "weight[number] @ x, for each number",
            chosen_linear,
            bound,
            inputs=(Input("x", "K"), Input("numbers", "M", "int32", below="E")),
            outputs=(Output("output", "MN"),),
            weights=(Weight("weight", "stack", "N", "K", "E", chosen_by="numbers"),),
        ),
        Kind(
            "two_products",
            "(gate @ x + gate_bias) * (up @ x + up_bias)",
            two_products,
            bound,
            inputs=(Input("x", "K"),),
            outputs=(Output("output", "N"),),
            weights=(
                Weight("gate", "matrices", "N", "K"),
                Weight("up", "matrices", "N", "K"),
                Weight("gate_bias", "biases", "N", of="gate", optional=True),
                Weight("up_bias", "biases", "N", of="up", optional=True),
            ),
            together=(("gate_bias", "up_bias"),),
        ),
        Kind(
            "attention_of_sizes",
            "softmax(q @ keys.T) @ values, where keys and values differ in size",
            attention_of_sizes,
            bound,
            inputs=(Input("qkv", "2HD+HE"),),
            outputs=(Output("output", "HE"),),
            attributes=(
                Attribute("heads", int, least=1, letter="H"),
                Attribute("keys", int, least=1, letter="D"),
                Attribute("values", int, least=1, letter="E"),
            ),
            cache=KeysAndValues("H", "D", "E"),
        ),
        Kind(
            "sum_of_products",
            "q @ sum(outer(k, v)), of the request's tokens so far",
            sum_of_products,
            bound,
            inputs=(Input("qkv", "2R+C"),),
            outputs=(Output("output", "C"),),
            attributes=(
                Attribute("rows", int, least=1, letter="R"),
                Attribute("columns", int, least=1, letter="C"),
            ),
            cache=StatePerRequest("R", "C"),
        ),
    )
}

"""gated_delta: linear attention whose state forgets, and corrects what it says of a key.

Yang, Kautz, Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024.
"""

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
    StatePerRequest,
    Weight,
)
from tensor_ops_decode.kinds.rounding import of_magnitude

__all__ = ["KIND"]

_EPS = 1e-6


def compute(call: Call) -> Array:
    query, key, value, beta, decay = _parts(call)
    assert call.keep is not None
    state = _state(call) * decay[:, np.newaxis, np.newaxis]
    delta = (value - np.einsum("hkv,hk->hv", state, key)) * beta[:, np.newaxis]
    state = state + key[:, :, np.newaxis] * delta[:, np.newaxis, :]
    call.keep(state.reshape(-1, state.shape[2]))
    return np.einsum("hkv,hk->hv", state, query).reshape(-1)


def bound(call: Call, output: Array, activations: str) -> Array:
    query, key, value, beta, decay = _parts(call)
    query, key = np.abs(query), np.abs(key)
    state = np.abs(_state(call)) * decay[:, np.newaxis, np.newaxis]
    delta = (np.abs(value) + np.einsum("hkv,hk->hv", state, key)) * beta[:, np.newaxis]
    state = state + key[:, :, np.newaxis] * delta[:, np.newaxis, :]
    sums = np.einsum("hkv,hk->hv", state, query).reshape(-1)
    # A state has the roundings of all tokens before; those of one are of sums, of norms and of the
    # exponential, whose argument is rounded too.
    exponents = np.log(np.maximum(decay, np.finfo(np.float32).tiny))
    each = 3 * state.shape[1] + 40 * (1 + np.abs(exponents).max())
    return of_magnitude(sums, each * (call.position + 1))


def _parts(call: Call) -> tuple[Array, Array, Array, Array, Array]:
    """Return query, key and value of each value head, how much it learns, and how much it keeps."""
    of = call.attributes
    key_heads, heads, size = of["key_heads"], of["value_heads"], of["key_size"]
    both = key_heads * size
    query, key, value = np.split(call.inputs["qkv"], (both, 2 * both))
    first = np.arange(heads)
    which = first // (heads // key_heads) if of["order"] == "grouped" else first % key_heads
    query, key = (_normalised(each.reshape(key_heads, size))[which] for each in (query, key))
    gate, rate = np.split(call.inputs["gates"], 2)
    with np.errstate(over="ignore"):
        beta = 1 / (1 + np.exp(-gate))
        decay = np.exp(call.weights["rate"] * np.logaddexp(0, rate + call.weights["rate_bias"]))
    return query * size**-0.5, key, value.reshape(heads, -1), beta, decay


def _normalised(x: Array) -> Array:
    return x / np.sqrt((x * x).sum(axis=1, keepdims=True) + _EPS)


def _state(call: Call) -> Array:
    """Return the state of the token before: a matrix of each value head."""
    assert call.state is not None
    of = call.attributes
    return call.state.reshape(of["value_heads"], of["key_size"], of["value_size"])


def _sample(name: str, key_heads: int, heads: int, key: int, value: int, order: str) -> Sample:
    return Sample(
        name,
        {"qkv": 2 * key_heads * key + heads * value, "gates": 2 * heads},
        {"rate": [(heads,)], "rate_bias": [(heads,)]},
        {
            "key_heads": key_heads,
            "value_heads": heads,
            "key_size": key,
            "value_size": value,
            "order": order,
        },
        cache=(heads * key, value),
    )


KIND = Kind(
    name="gated_delta",
    meaning="q @ S of each value head, where S forgets, and corrects k @ S towards v",
    compute=compute,
    bound=bound,
    inputs=(Input("qkv", "2GD+HE"), Input("gates", "2H")),
    outputs=(Output("output", "HE"),),
    weights=(Weight("rate", "vector", "H"), Weight("rate_bias", "vector", "H")),
    attributes=(
        Attribute("key_heads", int, least=1, letter="G"),
        Attribute("value_heads", int, least=1, letter="H"),
        Attribute("key_size", int, least=1, letter="D"),
        Attribute("value_size", int, least=1, letter="E"),
        Attribute("order", str, choices=("grouped", "tiled")),
    ),
    cache=StatePerRequest("HD", "E"),
    relations=(Relation("H", "a multiple of", "G"),),
    samples=(
        _sample("usual", 2, 4, 64, 64, "grouped"),
        _sample("odd", 3, 6, 7, 13, "tiled"),
        _sample("alone", 1, 1, 5, 3, "grouped"),
    ),
)

"""attention: grouped-query attention of a token to all tokens of its request up to itself."""

import numpy as np

from tensor_ops.extension import OPS
from tensor_ops_decode.kinds.cache_types import element_step
from tensor_ops_decode.kinds.kind import (
    Array,
    Attribute,
    Call,
    Input,
    KeysAndValues,
    Kind,
    Output,
    Relation,
    Sample,
    Weight,
)
from tensor_ops_decode.kinds.rounding import UNIT, of_magnitude

__all__ = ["KIND", "bound_with", "computed_with", "heads_of", "rotated_heads"]

_MOST_NEIGHBOURS = 8
_TO_INT16 = 0.5 / 32767


def compute(call: Call) -> Array:
    query, key, value = _heads(call)
    return computed_with(call, query, _stored(call, key, value))


def bound(call: Call, output: Array, activations: str) -> Array:
    query, key, value = _heads(call)
    return bound_with(call, query, _stored(call, key, value))


def computed_with(call: Call, query: Array, stored: tuple[Array, Array]) -> Array:
    """Return what a query that is prepared attends to, of the keys and values of all tokens."""
    keys, values = _in_window(call, stored)
    p, values = _probabilities(call, query, keys), _per_query_head(call, values)
    return np.einsum("hn,nhd->hd", p, values).reshape(-1)


def bound_with(call: Call, query: Array, stored: tuple[Array, Array]) -> Array:
    """Return the bound of the same."""
    keys, values = _in_window(call, stored)
    n, heads = len(keys), len(query)
    size = query.shape[1]
    # A score is a sum of products of rotated numbers, each off by some roundings; the key may also
    # round to the neighbour in a float16 cache, as the scale may in one of int8.
    to_cache = 0.0 if call.cache_dtype == "float32" else 2.0**-10
    of_values = to_cache + 6 * UNIT * ("v_norm" in call.weights)
    magnitude = np.einsum("hd,nhd->hn", np.abs(query), np.abs(_per_query_head(call, keys)))
    scores = np.abs(call.attributes["scale"]) * magnitude
    score_error = scores * ((4 * size**0.5 + 26) * UNIT + to_cache)
    p = _probabilities(call, query, keys)
    step = np.zeros((heads, size))
    if call.cache_dtype == "int8":
        # Few integers round to the neighbour: where another scale makes some of one group do so.
        # And an executor may round the query, in groups, and the weights of positions to int16.
        of_keys, steps = (_per_query_head(call, element_step(each)) for each in (keys, values))
        largest = np.einsum("hd,nhd->nhd", np.abs(query), of_keys).max(axis=2).T
        largest = _MOST_NEIGHBOURS * largest + _TO_INT16 * np.einsum(
            "hd,nhd->hn", 127 * element_step(query), np.abs(_per_query_head(call, keys))
        )
        score_error += np.abs(call.attributes["scale"]) * largest
        step = np.einsum("hn,nhd->nhd", p, steps).max(axis=0)
        step += _TO_INT16 * 127 * steps.sum(axis=0)
    score_error = score_error.max(axis=1, keepdims=True)
    weighted = np.einsum("hn,nhd->hd", p, np.abs(_per_query_head(call, values)))
    relative = 2 * score_error + (4 * n**0.5 + 16) * UNIT + of_values
    return of_magnitude(weighted * (1 + relative), 2).reshape(-1) + (
        weighted * np.broadcast_to(relative, (heads, size)) + step
    ).reshape(-1)


def _sizes(attributes) -> tuple[int, int, int]:  # type: ignore[no-untyped-def]
    return attributes["num_heads"], attributes["num_kv_heads"], attributes["head_size"]


def _heads(call: Call) -> tuple[Array, Array, Array]:
    """Return query, key and value of this token: rows are heads.

    Each is normalised, query and key are rotated, and the query is scaled.
    """
    heads, kv_heads, size = _sizes(call.attributes)
    rows, both = call.inputs["qkv"].reshape(-1, size), heads + kv_heads
    value = _normalised(call, rows[both:], "v_norm")
    rows = rows[:both]
    if "q_norm" in call.weights or "k_norm" in call.weights:
        query = _normalised(call, rows[:heads], "q_norm")
        rows = np.concatenate([query, _normalised(call, rows[heads:], "k_norm")])
    rows = rotated_heads(call, rows)
    return _scaled(call, rows[:heads]), rows[heads:], value


def heads_of(call: Call, query: Array) -> Array:
    """Return the heads of a query, normalised, rotated and scaled."""
    return _scaled(call, rotated_heads(call, _normalised(call, query, "q_norm")))


def _scaled(call: Call, query: Array) -> Array:
    if "query_scale" in call.weights:
        query = query * call.weights["query_scale"][call.position]
    return query


def _stored(call: Call, key: Array, value: Array) -> tuple[Array, Array]:
    """Store a token's key and value, and return those of all tokens."""
    assert call.store is not None
    return call.store(key, value)


def _in_window(call: Call, stored: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return keys and values, 0 before the window.

    What the cache has there may be of another request, and NaN.
    """
    keys, values = stored
    if window := call.attributes["window"]:
        hidden = max(0, len(keys) - window)
        keys[:hidden] = values[:hidden] = 0
    return keys, values


def _normalised(call: Call, x: Array, name: str) -> Array:
    if name not in call.weights:
        return x
    return OPS["rms_norm"].numpy(x, call.weights[name], call.attributes["eps"])


def rotated_heads(call: Call, x: Array) -> Array:
    """Return heads with their first numbers rotated by the angles of the token's position."""
    if "cos" not in call.weights:
        return x
    cos, sin = call.weights["cos"][call.position], call.weights["sin"][call.position]
    is_interleaved, width = call.attributes["rotation"] == "interleaved", 2 * len(cos)
    rotated: Array = OPS["rope"].numpy(x[:, :width], cos, sin, interleaved=is_interleaved)
    return rotated if width == x.shape[1] else np.hstack([rotated, x[:, width:]])


def _per_query_head(call: Call, x: Array) -> Array:
    """Return keys or values, shape (tokens, heads, size), with one head for each query head."""
    heads, kv_heads, _ = _sizes(call.attributes)
    return x.repeat(heads // kv_heads, axis=1)


def _probabilities(call: Call, query: Array, keys: Array) -> Array:
    """Return the weight of each token for each query head."""
    scores = call.attributes["scale"] * np.einsum("hd,nhd->hn", query, _per_query_head(call, keys))
    if cap := call.attributes["soft_cap"]:
        scores = cap * np.tanh(scores / cap)
    if window := call.attributes["window"]:
        scores[:, : max(0, len(keys) - window)] = -np.inf
    if "sinks" not in call.weights:
        return OPS["softmax"].numpy(scores)
    # A sink is a score without a value.
    sinks = call.weights["sinks"][:, np.newaxis]
    return OPS["softmax"].numpy(np.concatenate([scores, sinks], axis=1))[:, :-1]


def _sample(name: str, heads: int, kv_heads: int, size: int, **given: object) -> Sample:
    rotated = given.pop("rotated", size)
    weights: dict[str, list[tuple[int, ...]]] = {}
    if isinstance(rotated, int) and rotated:
        weights = {"cos": [(64, rotated // 2)], "sin": [(64, rotated // 2)]}
    if given.pop("norms", False):
        weights |= {"q_norm": [(size,)], "k_norm": [(size,)]}
    if given.pop("value_norm", False):
        weights["v_norm"] = [(size,)]
    if given.pop("scales", False):
        weights["query_scale"] = [(64, 1)]
    if given.pop("sinks", False):
        weights["sinks"] = [(heads,)]
    attributes = {
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_size": size,
        "scale": size**-0.5,
        "window": 0,
        "soft_cap": 0.0,
        "rotation": "halves",
        "eps": 1e-6,
    }
    qkv = (heads + 2 * kv_heads) * size
    return Sample(name, {"qkv": qkv}, weights, attributes | given, (kv_heads, size))


KIND = Kind(
    name="attention",
    meaning="softmax(scale * q @ keys.T) @ values, of the request's tokens so far",
    compute=compute,
    bound=bound,
    inputs=(Input("qkv", "HD+2GD"),),
    outputs=(Output("output", "HD"),),
    weights=(
        Weight("cos", "table", "L", "A", optional=True),
        Weight("sin", "table", "L", "A", optional=True),
        Weight("q_norm", "vector", "D", optional=True),
        Weight("query_scale", "table", "L", "1", optional=True),
        Weight("sinks", "vector", "H", optional=True),
        # shared_attention has those before.
        Weight("k_norm", "vector", "D", optional=True),
        Weight("v_norm", "vector", "D", optional=True),
    ),
    attributes=(
        Attribute("num_heads", int, least=1, letter="H"),
        Attribute("num_kv_heads", int, least=1, letter="G"),
        Attribute("head_size", int, least=2, letter="D"),
        Attribute("scale", float),
        Attribute("window", int, least=0),
        Attribute("soft_cap", float, least=0),
        Attribute("rotation", str, choices=("halves", "interleaved")),
        Attribute("eps", float, least=0),
    ),
    cache=KeysAndValues(heads="G", keys="D", values="D", window="window"),
    relations=(
        Relation("H", "a multiple of", "G"),
        Relation("L", "at least", "P"),
        Relation("2A", "at most", "D"),
    ),
    together=(("cos", "sin"),),
    samples=(
        _sample("one head", 1, 1, 32),
        _sample("grouped heads", 9, 3, 64, rotation="interleaved"),
        _sample("one key/value head", 5, 1, 48),
        _sample("part of a head rotated", 4, 2, 80, rotated=32),
        _sample("not rotated", 2, 2, 16, rotated=0, scale=0.3),
        _sample("norms of queries and keys", 4, 2, 128, norms=True),
        _sample("norms of values too", 6, 2, 24, norms=True, value_norm=True, window=6),
        _sample("values of one head normalised", 1, 1, 20, value_norm=True, rotated=0),
        _sample("queries scaled by position", 6, 2, 32, scales=True),
        _sample("scaled and not rotated", 2, 1, 16, rotated=0, scales=True),
        _sample("window", 4, 2, 32, window=5),
        _sample("sinks", 6, 2, 32, sinks=True, window=4),
        _sample("soft cap", 4, 4, 32, soft_cap=2.0, scale=1.0),
        _sample("odd head size", 3, 1, 6),
        _sample("large heads", 4, 2, 512, norms=True, value_norm=True, scale=0.1),
    ),
)

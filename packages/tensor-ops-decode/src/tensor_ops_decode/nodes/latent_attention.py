"""latent_attention: attention to latents, each of which is the key and the value of all heads."""

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
from tensor_ops_decode.nodes.attention import rotated_heads

__all__ = ["KIND"]

_MOST_NEIGHBOURS = 8


def compute(call: Call) -> Array:
    query, latents, rotated = _stored(call)
    return (_probabilities(call, query, latents, rotated) @ latents).reshape(-1)


def bound(call: Call, output: Array, activations: str) -> Array:
    query, latents, rotated = _stored(call)
    keys, scale = np.concatenate([latents, rotated], axis=1), np.abs(call.attributes["scale"])
    n, size = keys.shape
    # A score is a sum of products of numbers that are each off by some roundings; what is kept may
    # also round to the neighbour in a float16 cache, as the scale may in one of int8.
    to_cache = 0.0 if call.cache_dtype == "float32" else 2.0**-10
    score_error = scale * (np.abs(query) @ np.abs(keys).T)
    score_error *= (4 * size**0.5 + 26) * UNIT + to_cache
    p, step = _probabilities(call, query, latents, rotated), np.zeros(latents.shape[1])
    if call.cache_dtype == "int8":
        # Few integers round to the neighbour: where another scale makes some of one group do so.
        steps = [element_step(each) for each in (latents, rotated)]
        of_keys = np.concatenate(steps, axis=1)
        largest = np.max(np.abs(query)[:, np.newaxis] * of_keys, axis=2)
        score_error += scale * _MOST_NEIGHBOURS * largest
        step = (p[:, :, np.newaxis] * steps[0]).max(axis=1)
    weighted = p @ np.abs(latents)
    relative = 2 * score_error.max(axis=1, keepdims=True) + (4 * n**0.5 + 16) * UNIT + to_cache
    return (of_magnitude(weighted * (1 + relative), 2) + weighted * relative + step).reshape(-1)


def _stored(call: Call) -> tuple[Array, Array, Array]:
    """Return the queries, each as its latent and then its rotated part, and what all tokens keep.

    That of this token is stored. Rows are heads of the queries, and tokens.
    """
    heads = call.attributes["num_heads"]
    latent = call.weights["norm"]
    kv, query = call.inputs["kv"], call.inputs["query"].reshape(heads, -1)
    kept, key = kv[np.newaxis, : len(latent)], kv[np.newaxis, len(latent) :]
    kept = OPS["rms_norm"].numpy(np.ascontiguousarray(kept), latent, call.attributes["eps"])
    of_heads = rotated_heads(call, query[:, query.shape[1] - key.shape[1] :])
    absorbed = call.inputs["absorbed"].reshape(heads, -1)
    assert call.store is not None
    latents, keys = call.store(kept, rotated_heads(call, key))
    return np.concatenate([absorbed, of_heads], axis=1), latents[:, 0], keys[:, 0]


def _probabilities(call: Call, query: Array, latents: Array, rotated: Array) -> Array:
    """Return the weight of each token for each head."""
    keys = np.concatenate([latents, rotated], axis=1)
    return OPS["softmax"].numpy(call.attributes["scale"] * (query @ keys.T))


def _sample(
    name: str,
    sizes: tuple[int, int, int],
    before: int = 16,
    angles: int | None = None,
    **given: object,
) -> Sample:
    heads, latent, rope = sizes
    angles = rope // 2 if angles is None else angles
    weights: dict[str, list[tuple[int, ...]]]
    weights = {"cos": [(64, angles)], "sin": [(64, angles)], "norm": [(latent,)]}
    attributes = {
        "num_heads": heads,
        "scale": (before + rope) ** -0.5,
        "rotation": "interleaved",
        "eps": 1e-6,
    }
    columns = {
        "absorbed": heads * latent,
        "query": heads * (before + rope),
        "kv": latent + rope,
    }
    return Sample(name, columns, weights, attributes | given, (1, latent, rope))


KIND = Kind(
    name="latent_attention",
    meaning="softmax(scale * [absorbed, rotated query] @ [latents, rotated keys].T) @ latents, of "
    "the request's tokens so far, where kv is a latent before its norm, and a key",
    compute=compute,
    bound=bound,
    inputs=(Input("absorbed", "HL"), Input("query", "HS"), Input("kv", "L+R")),
    outputs=(Output("output", "HL"),),
    weights=(
        Weight("norm", "vector", "L"),
        Weight("cos", "table", "T", "A"),
        Weight("sin", "table", "T", "A"),
    ),
    attributes=(
        Attribute("num_heads", int, least=1, letter="H"),
        Attribute("scale", float),
        Attribute("rotation", str, choices=("halves", "interleaved")),
        Attribute("eps", float, least=0),
    ),
    cache=KeysAndValues(heads="1", keys="L", values="R"),
    relations=(
        Relation("S", "at least", "R"),
        Relation("T", "at least", "P"),
        Relation("2A", "at most", "R"),
    ),
    samples=(
        _sample("one head", (1, 32, 16)),
        _sample("several heads", (16, 64, 32)),
        _sample("heads that fill no vector", (5, 48, 8), 24),
        _sample("groups of heads", (75, 40, 12), 4, rotation="halves"),
        _sample("parts of odd sizes", (3, 33, 18), 1, angles=5),
        _sample("latents of several parts", (20, 160, 64), 0, scale=0.3),
    ),
)

"""route: which experts compute for a token, and the weight of what each gives."""

from collections.abc import Mapping
from typing import Any

import numpy as np

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
    Weight,
)
from tensor_ops_decode.kinds.rounding import exact, of_magnitude

__all__ = ["KIND"]


def compute(call: Call) -> tuple[Array, Array]:
    logits, of = call.inputs["x"], call.attributes
    scores = _scores(logits, of["scoring"])
    # Scores without a bias are in the order of their logits, which executors have alike.
    rank = scores + call.weights["bias"] if "bias" in call.weights else logits
    chosen = _largest(_of_chosen_groups(rank, of), of["top_k"])
    weights = scores[chosen]
    if of["scoring"] == "softmax_of_chosen":
        weights = OPS["softmax"].numpy(weights)
    if of["normalise"] == "sum":
        weights = weights / (weights.sum() + weights.dtype.type(of["eps"]))
    weights = weights * weights.dtype.type(of["scale"])
    if "expert_scale" in call.weights:
        weights = weights * call.weights["expert_scale"][chosen]
    return weights, chosen


def _scores(logits: Array, scoring: str) -> Array:
    if scoring == "softmax":
        return OPS["softmax"].numpy(logits)
    if scoring == "sigmoid":
        with np.errstate(over="ignore"):
            return 1 / (1 + np.exp(-logits))
    return logits


def _largest(rank: Array, count: int) -> Array:
    """Return where the largest elements are, the largest first; NaN counts as the largest."""
    with np.errstate(invalid="ignore"):
        order = np.argsort(-np.where(np.isnan(rank), np.inf, rank), kind="stable")
    return order[:count].astype(np.int32)


def _of_chosen_groups(rank: Array, of: Mapping[str, Any]) -> Array:
    """Return scores that are -inf outside the groups with the largest scores of their own."""
    if of["used_groups"] == of["groups"]:
        return rank
    groups = rank.reshape(of["groups"], -1)
    best = {"best": 1, "sum_of_best_two": 2}[of["group_score"]]
    sums = np.sort(groups, axis=1)[:, -best:].sum(axis=1)
    left_out = np.ones(of["groups"], bool)
    left_out[_largest(sums, of["used_groups"])] = False
    return np.where(left_out[:, np.newaxis], -np.inf, groups).reshape(-1)


def bound(call: Call, output: tuple[Array, Array], activations: str) -> tuple[Array, Array]:
    weights, chosen = output
    return of_magnitude(np.abs(weights), 16), exact(call, chosen, activations)


def _sample(name: str, experts: int, top_k: int, *vectors: str, **given: object) -> Sample:
    attributes = {
        "top_k": top_k,
        "scoring": "softmax",
        "normalise": "none",
        "eps": 0.0,
        "scale": 1.0,
        "groups": 1,
        "used_groups": 1,
        "group_score": "sum_of_best_two",
    }
    weights = {each: [(experts,)] for each in vectors}
    return Sample(name, {"x": experts}, weights, attributes | given)


KIND = Kind(
    name="route",
    meaning="the top_k largest scores of x, and where they are",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "E"),),
    outputs=(Output("weights", "K"), Output("chosen", "K", "int32", below="E")),
    weights=(
        Weight("bias", "vector", "E", optional=True),
        Weight("expert_scale", "vector", "E", optional=True),
    ),
    attributes=(
        Attribute("top_k", int, least=1, letter="K"),
        Attribute("scoring", str, choices=("softmax", "sigmoid", "softmax_of_chosen")),
        Attribute("normalise", str, choices=("none", "sum")),
        Attribute("eps", float, least=0),
        Attribute("scale", float),
        Attribute("groups", int, least=1, letter="G"),
        Attribute("used_groups", int, least=1, letter="U"),
        Attribute("group_score", str, choices=("sum_of_best_two", "best")),
    ),
    relations=(
        Relation("E", "a multiple of", "G"),
        Relation("G", "at least", "U"),
        Relation("UE", "at least", "KG"),
    ),
    samples=(
        _sample("softmax", 60, 4),
        _sample("normalised", 128, 8, normalise="sum"),
        _sample("sigmoid with a bias", 33, 5, "bias", scoring="sigmoid", scale=2.5),
        _sample("a scale of each expert", 40, 6, "expert_scale", normalise="sum"),
        _sample("both", 9, 2, "bias", "expert_scale", scoring="sigmoid", scale=0.5),
        _sample("of the chosen", 32, 4, scoring="softmax_of_chosen"),
        _sample("groups", 24, 3, scoring="sigmoid", normalise="sum", groups=6, used_groups=2),
        _sample("groups by their best", 24, 4, groups=6, used_groups=3, group_score="best"),
        _sample("groups of one", 7, 2, groups=7, used_groups=3, eps=1e-6, normalise="sum"),
        _sample("one expert", 1, 1, scoring="sigmoid"),
    ),
)

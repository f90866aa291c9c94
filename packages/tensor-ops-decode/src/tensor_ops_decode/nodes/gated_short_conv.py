"""gated_short_conv: a causal convolution over the last tokens of a request, between two gates."""

import numpy as np

from tensor_ops_decode.kinds.kind import (
    Array,
    Attribute,
    Call,
    Input,
    Kind,
    Output,
    Sample,
    StatePerRequest,
    Weight,
)
from tensor_ops_decode.kinds.rounding import of_magnitude

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    before, after, x = np.split(call.inputs["x"], 3)
    rows = _rows(call, before * x)
    assert call.keep is not None
    call.keep(rows[1:])
    return after * (np.einsum("kc,ck->c", rows, _weight(call)) + call.weights.get("bias", 0))


def bound(call: Call, output: Array, activations: str) -> Array:
    before, after, x = np.split(call.inputs["x"], 3)
    rows = np.abs(_rows(call, before * x))
    sums = np.einsum("kc,ck->c", rows, np.abs(_weight(call))) + np.abs(call.weights.get("bias", 0))
    return of_magnitude(np.abs(after) * sums, len(rows) + 3)


def _rows(call: Call, newest: Array) -> Array:
    """Return what is convolved, the oldest row first."""
    assert call.state is not None
    return np.concatenate([call.state, newest[np.newaxis]])


def _weight(call: Call) -> Array:
    return call.weights["weight"].reshape(-1, call.attributes["kept"] + 1)


def _sample(name: str, columns: int, kept: int, *, has_bias: bool = False) -> Sample:
    weights: dict[str, list[tuple[int, ...]]] = {"weight": [(columns * (kept + 1),)]}
    if has_bias:
        weights["bias"] = [(columns,)]
    return Sample(name, {"x": 3 * columns}, weights, {"kept": kept}, cache=(kept, columns))


KIND = Kind(
    name="gated_short_conv",
    meaning="after * sum(weight[:, k] * row k), where rows are before * x of the last tokens, "
    "and x has before, after and x one behind the other",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "3C"),),
    outputs=(Output("output", "C"),),
    weights=(Weight("weight", "vector", "RC+C"), Weight("bias", "vector", "C", optional=True)),
    attributes=(Attribute("kept", int, least=1, letter="R"),),
    cache=StatePerRequest("R", "C"),
    samples=(
        _sample("usual", 576, 2),
        _sample("odd", 37, 3, has_bias=True),
    ),
)

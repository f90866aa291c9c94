"""short_conv: a causal convolution over the last tokens of a request."""

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
    rows = _rows(call)
    assert call.keep is not None
    call.keep(rows[1:])
    y = np.einsum("kc,ck->c", rows, _weight(call)) + call.weights.get("bias", 0)
    if call.attributes["activation"] == "none":
        return y
    with np.errstate(over="ignore"):
        return y / (1 + np.exp(-y))


def bound(call: Call, output: Array, activations: str) -> Array:
    rows = np.abs(_rows(call))
    sums = np.einsum("kc,ck->c", rows, np.abs(_weight(call))) + np.abs(call.weights.get("bias", 0))
    # The slope of silu is at most 1.1.
    return 1.1 * of_magnitude(sums, len(rows) + 1) + of_magnitude(np.abs(output), 4)


def _rows(call: Call) -> Array:
    """Return what is convolved, the oldest row first."""
    assert call.state is not None
    return np.concatenate([call.state, call.inputs["x"][np.newaxis]])


def _weight(call: Call) -> Array:
    return call.weights["weight"].reshape(-1, call.attributes["kept"] + 1)


def _sample(name: str, columns: int, kept: int, activation: str, *, has_bias: bool) -> Sample:
    weights: dict[str, list[tuple[int, ...]]] = {"weight": [(columns * (kept + 1),)]}
    if has_bias:
        weights["bias"] = [(columns,)]
    attributes = {"kept": kept, "activation": activation}
    return Sample(name, {"x": columns}, weights, attributes, cache=(kept, columns))


KIND = Kind(
    name="short_conv",
    meaning="activation(sum(weight[:, k] * row k)), where rows are x of the last tokens",
    compute=compute,
    bound=bound,
    inputs=(Input("x", "C"),),
    outputs=(Output("output", "C"),),
    weights=(Weight("weight", "vector", "RC+C"), Weight("bias", "vector", "C", optional=True)),
    attributes=(
        Attribute("kept", int, least=1, letter="R"),
        Attribute("activation", str, choices=("none", "silu")),
    ),
    cache=StatePerRequest("R", "C"),
    samples=(
        _sample("usual", 1024, 3, "silu", has_bias=False),
        _sample("odd", 37, 2, "silu", has_bias=True),
        _sample("linear", 70, 1, "none", has_bias=False),
    ),
)

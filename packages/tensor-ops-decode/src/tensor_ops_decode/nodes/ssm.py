"""ssm: a state space model whose step and inputs depend on the token.

Dao and Gu, "Transformers are SSMs", 2024 (Mamba 2).
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


def compute(call: Call) -> Array:
    x, b, c, step, decay = _parts(call)
    assert call.keep is not None
    state = _state(call) * decay[:, np.newaxis, np.newaxis]
    state = state + (step[:, np.newaxis] * x)[:, :, np.newaxis] * b[:, np.newaxis, :]
    call.keep(state.reshape(-1, state.shape[2]))
    skipped = call.weights["skip"][:, np.newaxis] * x
    return (np.einsum("hdn,hn->hd", state, c) + skipped).reshape(-1)


def bound(call: Call, output: Array, activations: str) -> Array:
    x, b, c, step, decay = map(np.abs, _parts(call))
    state = np.abs(_state(call)) * decay[:, np.newaxis, np.newaxis]
    state = state + (step[:, np.newaxis] * x)[:, :, np.newaxis] * b[:, np.newaxis, :]
    skipped = np.abs(call.weights["skip"])[:, np.newaxis] * x
    sums = (np.einsum("hdn,hn->hd", state, c) + skipped).reshape(-1)
    # As of a state that forgets: the roundings of all tokens before, and of the exponential.
    exponents = np.log(np.maximum(decay, np.finfo(np.float32).tiny))
    each = state.shape[2] + 40 * (1 + np.abs(exponents).max())
    return of_magnitude(sums, each * (call.position + 1))


def _parts(call: Call) -> tuple[Array, Array, Array, Array, Array]:
    """Return input, B and C of each head, its step, and how much of its state it keeps."""
    of = call.attributes
    heads, groups, size = of["num_heads"], of["num_groups"], of["state_size"]
    inner = heads * of["head_size"]
    x, b, c = np.split(call.inputs["xbc"], (inner, inner + groups * size))
    b, c = (each.reshape(groups, size).repeat(heads // groups, axis=0) for each in (b, c))
    step = np.logaddexp(0, call.inputs["steps"] + call.weights["step_bias"])
    return x.reshape(heads, -1), b, c, step, np.exp(call.weights["rate"] * step)


def _state(call: Call) -> Array:
    """Return the state of the token before: a matrix of each head."""
    assert call.state is not None
    of = call.attributes
    return call.state.reshape(of["num_heads"], of["head_size"], of["state_size"])


def _sample(name: str, heads: int, size: int, groups: int, state_size: int) -> Sample:
    return Sample(
        name,
        {"xbc": heads * size + 2 * groups * state_size, "steps": heads},
        {"rate": [(heads,)], "step_bias": [(heads,)], "skip": [(heads,)]},
        {
            "num_heads": heads,
            "head_size": size,
            "num_groups": groups,
            "state_size": state_size,
        },
        cache=(heads * size, state_size),
    )


KIND = Kind(
    name="ssm",
    meaning="S @ C + skip * x of each head, where S = exp(rate * step) * S + step * x B",
    compute=compute,
    bound=bound,
    inputs=(Input("xbc", "HD+2GN"), Input("steps", "H")),
    outputs=(Output("output", "HD"),),
    weights=(
        Weight("rate", "vector", "H"),
        Weight("step_bias", "vector", "H"),
        Weight("skip", "vector", "H"),
    ),
    attributes=(
        Attribute("num_heads", int, least=1, letter="H"),
        Attribute("head_size", int, least=1, letter="D"),
        Attribute("num_groups", int, least=1, letter="G"),
        Attribute("state_size", int, least=1, letter="N"),
    ),
    cache=StatePerRequest("HD", "N"),
    relations=(Relation("H", "a multiple of", "G"),),
    samples=(
        _sample("usual", 4, 64, 1, 128),
        _sample("odd", 6, 5, 3, 7),
        _sample("alone", 1, 3, 1, 1),
    ),
)

"""qk_norm: queries and keys, of all heads together, each scaled to a root mean square of one."""

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
from tensor_ops_decode.kinds.rounding import of_magnitude

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    q_norm, k_norm, eps = call.weights["q_norm"], call.weights["k_norm"], call.attributes["eps"]
    query, key, rest = np.split(call.inputs["qkv"], np.cumsum([len(q_norm), len(k_norm)]))
    normed = OPS["rms_norm"].numpy(query, q_norm, eps), OPS["rms_norm"].numpy(key, k_norm, eps)
    return np.concatenate([*normed, rest])


def bound(call: Call, output: Array, activations: str) -> Array:
    found = of_magnitude(np.abs(output), 6)
    found[len(call.weights["q_norm"]) + len(call.weights["k_norm"]) :] = 0
    return found


KIND = Kind(
    name="qk_norm",
    meaning="rms_norm of queries and of keys, each of all heads together; values as they are",
    compute=compute,
    bound=bound,
    inputs=(Input("qkv", "H"),),
    outputs=(Output("output", "H"),),
    weights=(Weight("q_norm", "vector", "Q"), Weight("k_norm", "vector", "K")),
    attributes=(Attribute("eps", float, least=0),),
    relations=(Relation("Q+K", "at most", "H"),),
    samples=(
        Sample("usual", {"qkv": 960}, {"q_norm": [(576,)], "k_norm": [(192,)]}, {"eps": 1e-5}),
        Sample("odd", {"qkv": 23}, {"q_norm": [(13,)], "k_norm": [(5,)]}, {"eps": 1e-2}),
    ),
)

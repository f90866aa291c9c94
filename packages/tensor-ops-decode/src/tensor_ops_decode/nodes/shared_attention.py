"""shared_attention: attention of queries to the keys and values that another node has stored."""

from tensor_ops_decode.kinds.kind import (
    Array,
    Call,
    Input,
    KeysAndValues,
    Kind,
    Output,
    Relation,
    Sample,
    Weight,
)
from tensor_ops_decode.nodes import attention

__all__ = ["KIND"]


def compute(call: Call) -> Array:
    assert call.stored is not None
    return attention.computed_with(call, _query(call), call.stored())


def bound(call: Call, output: Array, activations: str) -> Array:
    assert call.stored is not None
    return attention.bound_with(call, _query(call), call.stored())


def _query(call: Call) -> Array:
    heads = call.inputs["q"].reshape(call.attributes["num_heads"], -1)
    return attention.heads_of(call, heads)


def _sample(of: Sample) -> Sample:
    """Return the sample of attention without keys and values of its own."""
    columns = of.attributes["num_heads"] * of.attributes["head_size"]
    weights = {name: of.weights[name] for name in of.weights if name not in ("k_norm", "v_norm")}
    return Sample(of.name, {"q": columns}, weights, of.attributes, of.cache)


KIND = Kind(
    name="shared_attention",
    meaning="softmax(scale * q @ keys.T) @ values, of what another node has stored of the tokens",
    compute=compute,
    bound=bound,
    inputs=(Input("q", "HD"),),
    outputs=(Output("output", "HD"),),
    weights=(
        Weight("cos", "table", "L", "A", optional=True),
        Weight("sin", "table", "L", "A", optional=True),
        Weight("q_norm", "vector", "D", optional=True),
        Weight("query_scale", "table", "L", "1", optional=True),
        Weight("sinks", "vector", "H", optional=True),
    ),
    attributes=attention.KIND.attributes,
    cache=KeysAndValues("G", "D", "D", "window", is_written_before=True),
    relations=(
        Relation("H", "a multiple of", "G"),
        Relation("L", "at least", "P"),
        Relation("2A", "at most", "D"),
    ),
    together=(("cos", "sin"),),
    samples=tuple(map(_sample, attention.KIND.samples)),
)

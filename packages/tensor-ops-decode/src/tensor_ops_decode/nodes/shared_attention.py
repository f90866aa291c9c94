"""shared_attention: attention of queries to the keys and values that another node has stored."""

from tensor_ops_decode.kinds.kind import Array, Call, Input, KeysAndValues, Kind, Output, Sample
from tensor_ops_decode.nodes import attention

__all__ = ["KIND"]

# Those that are not of keys and values: the first ones.
_WEIGHTS = attention.KIND.weights[:5]


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
    known = {weight.name for weight in _WEIGHTS}
    weights = {name: shapes for name, shapes in of.weights.items() if name in known}
    return Sample(of.name, {"q": columns}, weights, of.attributes, of.cache)


KIND = Kind(
    name="shared_attention",
    meaning="softmax(scale * q @ keys.T) @ values, of what another node has stored of the tokens",
    compute=compute,
    bound=bound,
    inputs=(Input("q", "HD"),),
    outputs=(Output("output", "HD"),),
    weights=_WEIGHTS,
    attributes=attention.KIND.attributes,
    cache=KeysAndValues("G", "D", "D", "window", is_written_before=True),
    relations=attention.KIND.relations,
    together=attention.KIND.together,
    samples=tuple(map(_sample, attention.KIND.samples)),
)

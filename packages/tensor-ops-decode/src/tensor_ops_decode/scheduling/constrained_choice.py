"""Requests whose tokens must follow a constraint: the logits of all others count as minus infinity.

Tested by tests/decode/scheduling/test_constraint.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.nodes.argmax import largest
from tensor_ops_decode.nodes.sample import drawn, edited
from tensor_ops_decode.program.records import PER_EDIT
from tensor_ops_decode.scheduling.constraint import TokenConstraint
from tensor_ops_decode.scheduling.request import Request

__all__ = ["chosen_tokens", "drawn_by_likeliest"]

# Tokens that are less likely than these, beside the likeliest, are put in order only where one of
# them is drawn: to sort a vocabulary takes longer than a step of a small model.
_LEAST_SORTED = (2.0**-6, 2.0**-12, 2.0**-20)


def chosen_tokens(
    request: Request,
    count: int,
    rows: range,
    tokens: Sequence[int],
    logits: Array,
    arrays: Mapping[str, Array],
) -> list[int]:
    """Return the tokens that a step has chosen for a request, as its constraint allows.

    Parameters
    ----------
    request : Request
    count : int
        How many of its own tokens the step had.
    rows : range
        The rows of the outputs that the request has.
    tokens, logits : memoryview, ndarray
        The outputs, as the step has left them.
    arrays : mapping of str to ndarray
        Those of the step.

    Returns
    -------
    list of int
        With -1 where no token can be chosen.
    """
    chosen = [tokens[row] for row in rows]
    if not chosen or request.constraint is None:
        return chosen
    position = request.num_fed + count - 1
    return [_constrained(request, request.constraint, logits[rows[0]], arrays, position, chosen[0])]


def _constrained(
    request: Request,
    constraint: TokenConstraint,
    logits: Array,
    arrays: Mapping[str, Array],
    position: int,
    likeliest: int,
) -> int:
    """Return the next token of a request as the node ``sample`` would choose it, or -1.

    `position` is that of the token before it, and `likeliest` has the largest logit after the edits
    of the request, whatever the constraint says.
    """
    how, generated = request.sampling, request.generated
    # Most tokens of greedy answers are likeliest among all, which takes no array to know.
    if likeliest < 0 or (how.temperature == 0 and constraint.allows(generated, likeliest)):
        return likeliest
    allowed = constraint.allowed(generated)
    if not allowed.any():
        return -1
    if number := int(arrays["num_edits"][request.slot]):
        edits = {name: arrays[name][request.slot, :number] for name in PER_EDIT}
        logits = edited(logits.astype(np.float64), edits).astype(np.float32)
    by = {name: np.float32(getattr(how, name)) for name in ("temperature", "top_p", "min_p")}
    index = drawn_by_likeliest(
        logits[allowed], {**by, "top_k": how.top_k, "seed": how.seed}, position
    )
    return index if index < 0 else int(np.flatnonzero(allowed)[index])


def drawn_by_likeliest(logits: Array, by: Mapping[str, Any], position: int) -> int:
    """Return the index that `drawn` does, with few of the logits in order where these decide."""
    (best,) = largest(logits).tolist()
    if best < 0 or by["temperature"] == 0:
        return int(best)
    for places, rest in _likeliest(logits, by, logits[best]):
        index = drawn(logits[places].astype(np.float64), by, position, rest)
        if index is not None:
            return int(places[index])
    raise AssertionError("all logits are the last of these")


def _likeliest(
    logits: Array, by: Mapping[str, Any], largest_logit: np.float32
) -> Iterator[tuple[Array, float]]:
    """Yield the places of more and more of the likeliest logits, with the sum of the others."""
    count, top_k = len(logits), by["top_k"]
    if 0 < top_k < count:
        yield np.flatnonzero(logits >= np.partition(logits, -top_k)[-top_k]), 0.0
    elif np.isfinite(largest_logit):
        # Each new array of such a size takes longer than what is done with it.
        weights = np.subtract(logits, largest_logit, dtype=np.float64)
        weights /= float(by["temperature"])
        np.exp(weights, out=weights)
        total = weights.sum()
        for least in _LEAST_SORTED:
            if not 0 < by["min_p"] < least:
                places = np.flatnonzero(weights >= least)
                yield places, max(float(total - weights[places].sum()), 0.0)
    yield np.arange(count), 0.0

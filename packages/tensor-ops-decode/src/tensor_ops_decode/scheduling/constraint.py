"""Requests whose tokens must follow a constraint: the logits of all others count as minus infinity.

Tested by tests/decode/scheduling/test_constraint.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.nodes.argmax import largest
from tensor_ops_decode.nodes.sample import drawn, edited
from tensor_ops_decode.program.records import PER_EDIT

if TYPE_CHECKING:
    from tensor_ops_decode.scheduling.request import Request

__all__ = ["TokenConstraint", "chosen_tokens"]

# Tokens that are less likely than this, beside the likeliest, are put in order only where one of
# them is drawn: that takes longer than a step of a small model.
_LEAST_SORTED = 2.0**-20


@runtime_checkable
class TokenConstraint(Protocol):
    """Which tokens may follow in one request; the tokens that it has generated are given.

    They are those of the call before, and perhaps some more. A call may be interrupted anywhere,
    and is repeated then.
    """

    def allows(self, generated: Sequence[int], token: int) -> bool:
        """Return whether a token may be the next one."""

    def allowed(self, generated: Sequence[int]) -> Array:
        """Return a bool for each token of the vocabulary: whether it may be the next one."""

    def is_complete(self, generated: Sequence[int]) -> bool:
        """Return whether nothing may follow any more, so that the request has ended."""

    def forced(self, generated: Sequence[int], most: int) -> list[int]:
        """Return the next tokens, `most` at most, each of which is the only one that is allowed.

        There may be fewer than that, or none. A step computes them together, as those of a prompt.
        """

    def problem(self, generated: Sequence[int]) -> str:
        """Return why no token may follow; an empty string if one may."""


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
    # Most tokens of greedy answers are likeliest among all, which takes no mask to know.
    if likeliest < 0 or (how.temperature == 0 and constraint.allows(generated, likeliest)):
        return likeliest
    names = ("temperature", "top_p", "min_p")
    by: dict[str, Any] = {name: np.float32(getattr(how, name)) for name in names}
    by |= {"top_k": how.top_k, "seed": how.seed}
    number = arrays["num_edits"][request.slot]
    by |= {name: arrays[name][request.slot, :number] for name in PER_EDIT}
    changed = edited(logits.astype(np.float64), by)
    places = np.flatnonzero(constraint.allowed(generated))
    if not places.size:
        return -1
    index = _drawn(changed[places], by, position)
    return index if index < 0 else int(places[index])


def _drawn(logits: Array, by: Mapping[str, Any], position: int) -> int:
    """Return the index that `drawn` does, with few of the logits in order where these decide."""
    (best,) = largest(logits).tolist()
    if best < 0 or by["temperature"] == 0:
        return int(best)
    likely, rest = _likely(logits, by, logits[best])
    index = drawn(logits[likely], by, position, rest)
    if index is not None:
        return int(likely[index])
    index = drawn(logits, by, position)
    return -1 if index is None else index


def _likely(logits: Array, by: Mapping[str, Any], largest_logit: float) -> tuple[Array, float]:
    """Return the places of the likeliest logits, and the sum of what else may be drawn."""
    top_k, min_p = by["top_k"], by["min_p"]
    if 0 < top_k < len(logits):
        return np.flatnonzero(logits >= np.partition(logits, -top_k)[-top_k]), 0.0
    if not np.isfinite(largest_logit) or 0 < min_p < _LEAST_SORTED:
        return np.arange(len(logits)), 0.0
    weights = np.exp((logits - largest_logit) / float(by["temperature"]))
    is_likely = weights >= _LEAST_SORTED
    return np.flatnonzero(is_likely), float(weights[~is_likely].sum())

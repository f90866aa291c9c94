"""Tokens that are chosen behind a step, for requests with what the node ``sample`` does not know.

A constraint lets the logits of all other tokens count as minus infinity; `Sampling` says what else
there is, and in which order. Tested by tests/decode/scheduling/test_constraint.py,
tests/decode/scheduling/test_sampling_behind_steps.py and tests/decode/generation/test_samplers.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.nodes.argmax import largest
from tensor_ops_decode.nodes.sample import drawn, edited
from tensor_ops_decode.program.records import PER_EDIT
from tensor_ops_decode.scheduling.request import Request
from tensor_ops_decode.scheduling.sampling import Sampling

__all__ = ["chosen_tokens", "drawn_by_likeliest", "most_likely", "typical"]

# Tokens that are less likely than these, beside the likeliest, are put in order only where one of
# them is drawn: to sort a vocabulary takes longer than a step of a small model.
_LEAST_SORTED = (2.0**-6, 2.0**-12, 2.0**-20)
_RANGES_PER_NAT, _MOST_RANGES = 64, 4096
_LEAST_EXPONENT = -800.0  # whose power is 0


def chosen_tokens(
    request: Request,
    count: int,
    rows: range,
    tokens: Sequence[int],
    logits: Array,
    arrays: Mapping[str, Array],
) -> list[int]:
    """Return the tokens that a step has chosen for a request, or that are chosen behind it.

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
    if not chosen or not request.is_chosen_behind_steps:
        return chosen
    position = request.num_fed + count - 1
    return [_chosen(request, logits[rows[0]], arrays, position, chosen[0])]


def _chosen(
    request: Request, logits: Array, arrays: Mapping[str, Array], position: int, likeliest: int
) -> int:
    """Return the next token of a request, or -1.

    `position` is that of the token before it, and `likeliest` has the largest logit after the edits
    of the request, whatever a constraint and DRY say.
    """
    how, constraint, generated = request.sampling, request.constraint, request.generated
    if likeliest < 0:
        return likeliest
    penalties = how.dry_penalties(request.tokens)
    # Most tokens of greedy answers are likeliest among all, which takes no array to know.
    is_kept = likeliest not in penalties
    if is_kept and constraint is not None and how.temperature == 0:
        is_kept = constraint.allows(generated, likeliest)
    if is_kept and how.temperature == 0:
        return likeliest
    if number := int(arrays["num_edits"][request.slot]):
        edits = {name: arrays[name][request.slot, :number] for name in PER_EDIT}
        logits = edited(logits.astype(np.float64), edits).astype(np.float32)
    if penalties:
        logits = logits.copy()
        with np.errstate(over="ignore"):
            logits[[*penalties]] -= np.array([*penalties.values()], np.float32)
    if constraint is None:
        return _drawn(logits, how, position)
    allowed = constraint.allowed(generated)
    index = _drawn(logits[allowed], how, position) if allowed.any() else -1
    return index if index < 0 else int(np.flatnonzero(allowed)[index])


def _drawn(logits: Array, how: Sampling, position: int) -> int:
    """Return the index that is chosen of logits with all that changes them, or -1."""
    by: dict[str, Any] = {
        name: np.float32(getattr(how, name)) for name in ("temperature", "top_p", "min_p")
    }
    by |= {"top_k": how.top_k, "seed": how.seed}
    excluded_from = how.excluded_from(position)
    if how.temperature == 0 or how.typical_p == 1 or largest(logits)[0] < 0:
        return drawn_by_likeliest(logits, by, position, excluded_from)
    places = most_likely(logits, how.top_k)
    places = places[typical(logits[places], by["temperature"], how.typical_p)]
    index = drawn_by_likeliest(logits[places], by | {"top_k": 0}, position, excluded_from)
    return int(places[index])


def most_likely(logits: Array, count: int) -> Array:
    """Return the places of the largest logits, in order; of equal ones the first, and 0 for all.

    Examples
    --------
    >>> most_likely(np.array([2.0, 5.0, 3.0, 3.0]), 2).tolist()
    [1, 2]
    """
    if not 0 < count < len(logits):
        return np.arange(len(logits))
    places = np.flatnonzero(logits >= np.partition(logits, -count)[-count])
    order = np.argsort(-logits[places], kind="stable")[:count]
    return np.sort(places[order])


def typical(logits: Array, temperature: float, mass: float) -> Array:
    """Return the places, in order, of the logits that typical p keeps; one is not minus infinity.

    They are the first, by the distance of their information from the entropy, whose probabilities
    sum to more than `mass`, as in llama.cpp; of equal distances, the first place. Source: Meister,
    Pimentel, Wiher and Cotterell, "Locally typical sampling", 2022.

    Examples
    --------
    >>> typical(np.log([0.8, 0.1, 0.05, 0.05]), 1.0, 0.05).tolist()  # the entropy is 0.71
    [0]
    """
    if (largest_logit := logits.max()) == np.inf:
        logits, largest_logit = np.where(logits == np.inf, 0.0, -np.inf), 0.0
    log_p = np.subtract(logits, largest_logit, dtype=np.float64)
    log_p /= float(temperature)
    np.maximum(log_p, _LEAST_EXPONENT, out=log_p)
    p = np.exp(log_p)
    total = p.sum()
    # Not by BLAS, which would wait here for threads of its own.
    entropy = np.log(total) - np.multiply(p, log_p).sum() / total
    distances = log_p
    distances += entropy - np.log(total)
    np.abs(distances, out=distances)
    # Whole ranges of distances are kept; only the last one must be in order.
    ranges = np.minimum(distances * _RANGES_PER_NAT, _MOST_RANGES).astype(np.intp)
    sums = np.cumsum(np.bincount(ranges, p))
    last = int(np.searchsorted(sums, mass * total, side="right"))
    (places,) = np.nonzero(ranges == last)
    places = places[np.argsort(distances[places], kind="stable")]
    rest = mass * total - (sums[last - 1] if last else 0.0)
    count = int(np.searchsorted(np.cumsum(p[places]), rest, side="right")) + 1
    is_kept = ranges < last
    is_kept[places[:count]] = True
    return np.flatnonzero(is_kept)


def drawn_by_likeliest(
    logits: Array, by: Mapping[str, Any], position: int, excluded_from: float = 1.0
) -> int:
    """Return the index that `drawn` does, with few of the logits in order where these decide."""
    (best,) = largest(logits).tolist()
    if best < 0 or by["temperature"] == 0:
        return int(best)
    for places, rest in _likeliest(logits, by, logits[best]):
        few = logits[places].astype(np.float64)
        index = drawn(few, by, position, rest, excluded_from)
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

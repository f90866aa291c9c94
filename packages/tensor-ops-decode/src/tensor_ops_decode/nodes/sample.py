"""sample: a token drawn from the distribution of the logits."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensor_ops_decode.kinds.kind import Array, Call, Input, Kind, Output, Sample
from tensor_ops_decode.kinds.rounding import exact
from tensor_ops_decode.nodes.argmax import largest

__all__ = ["KIND", "drawn", "edited", "philox"]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF


def philox(seed: int, counter: int) -> int:
    """Return the first word of Philox4x32-10, a random number that only its arguments decide.

    Examples
    --------
    >>> hex(philox(0, 0))
    '0x6627e8d5'

    References
    ----------
    Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    key = [seed & _WORD, seed >> 32 & _WORD]
    words = [counter & _WORD, counter >> 32 & _WORD, 0, 0]
    for _ in range(10):
        first, second = words[0] * _MULTIPLIERS[0], words[2] * _MULTIPLIERS[1]
        words = [
            second >> 32 ^ words[1] ^ key[0],
            second & _WORD,
            first >> 32 ^ words[3] ^ key[1],
            first & _WORD,
        ]
        key = [key[0] + _WEYL[0] & _WORD, key[1] + _WEYL[1] & _WORD]
    return words[0]


def compute(call: Call) -> Array:
    logits, by = edited(call.inputs["x"].astype(np.float64), call.sampling), call.sampling
    best = largest(logits)
    if by["temperature"] == 0 or best[0] < 0:
        return best
    return np.array([drawn(logits, by, call.position)], np.int32)


def drawn(
    logits: Array,
    by: Mapping[str, Any],
    position: int,
    rest: float = 0.0,
    excluded_from: float = 1.0,
) -> int | None:
    """Return the index of a random logit, by the settings of a request.

    There may be other logits, all smaller than these and none that `top_k` or `min_p` keeps, whose
    probabilities beside that of the largest have the sum `rest`. The index is None where one of
    them is drawn, or may be.

    Of those kept whose probability is at least `excluded_from`, all but the least likely are
    excluded. The node itself excludes none.
    """
    temperature = float(by["temperature"])
    order = np.argsort(-logits, kind="stable")
    if by["top_k"]:
        order = order[: by["top_k"]]
    with np.errstate(invalid="ignore"):  # two infinite logits
        p = np.exp((logits[order] - logits[order[0]]) / temperature)
    p = np.where(logits[order] == logits[order[0]], 1.0, p)
    sums = np.cumsum(p)
    total = sums[-1] + rest
    kept = int(np.searchsorted(sums, float(by["top_p"]) * total)) + 1
    if by["min_p"] > 0:
        kept = min(kept, int(np.count_nonzero(p >= float(by["min_p"]))))
    if not rest:
        kept = min(kept, len(p))
    u = philox(int(by["seed"]), position) * 2.0**-32
    is_open = kept > len(p)  # some of the others are kept; how many is known if they all are
    if is_open and by["top_p"] != 1:
        return None
    least = excluded_from * (total if is_open else sums[kept - 1])
    num_likely = int(np.count_nonzero((p[:kept] >= least) & (p[:kept] > 0)))
    if is_open and num_likely == len(p) and rest >= least:
        return None  # there may be more of them
    first = max(num_likely - 1, 0)
    sums = np.cumsum(p[first:kept])
    end = sums[-1] + (rest if is_open else 0.0)
    index = first + int(np.searchsorted(sums, u * end, side="right"))
    if is_open:
        return int(order[index]) if index < len(p) else None
    return int(order[min(index, kept - 1)])


def edited(logits: Array, by: Mapping[str, Any]) -> Array:
    """Return logits with the biases and penalties of a request, which are applied in order."""
    edits = zip(by["edited_tokens"], by["edit_biases"], by["edit_penalties"], strict=True)
    for token, bias, penalty in edits:
        if bias == -np.inf:  # whatever the logit
            logits[token] = bias
            continue
        logit = logits[token] + bias
        with np.errstate(over="ignore"):
            logits[token] = np.float32(logit / penalty if logit > 0 else logit * penalty)
    return logits


KIND = Kind(
    name="sample",
    meaning="a random index, by softmax(edited(x) / temperature) cut to top_k, top_p and min_p; "
    "-1 as of argmax",
    compute=compute,
    bound=exact,
    inputs=(Input("x", ""),),
    outputs=(Output("output", "1", dtype="int32"),),
    draws=True,
    samples=(Sample("odd", {"x": 333}),),
)

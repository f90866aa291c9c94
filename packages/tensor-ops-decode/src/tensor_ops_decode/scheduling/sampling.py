"""How a request's tokens are chosen."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from tensor_ops_decode.arguments import whole
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program.records import MOST_BIASES, PER_REQUEST

__all__ = ["Sampling", "note_last_token", "write_sampling"]

_LARGEST = float(np.finfo(np.float32).max)
# Beyond it, float64 gives neighbouring logits the same probability, and top_k loses their order.
_HOTTEST = 1e6
_SMALLEST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Sampling:
    """The settings of the node ``sample`` for one request.

    Attributes
    ----------
    temperature : float
        The number that the logits are divided by, up to 1e6; 0 takes the largest one.
    top_k : int
        How many of the most probable tokens are kept; 0 keeps all.
    top_p : float
        The most probable tokens are kept until their probabilities sum to this.
    min_p : float
        Tokens less probable than this part of the most probable one are dropped.
    seed : int
        Of the random numbers: with the same seed, a request has the same tokens.
    repetition_penalty : float
        The number that a positive logit of a token in the prompt or the answer is divided by, and a
        negative one multiplied; 1 changes nothing.
    presence_penalty, frequency_penalty : float
        The numbers that are subtracted from the logit of a token in the prompt or the answer: once,
        and for each time that it is there. They are subtracted before `repetition_penalty`.
    penalty_last_n : int or None
        Of how many of the last tokens these three take note; None for all.
    logit_bias : mapping of int to float
        Numbers added to the logits of some tokens, before penalties; ``-math.inf`` bans one.

    Examples
    --------
    >>> Sampling(temperature=0.8, top_p=0.95, seed=7).top_k
    0
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name, least, most, expected in (
            ("temperature", 0.0, _HOTTEST, "0 or larger, up to 1e6"),
            ("top_p", math.nextafter(0, 1), 1.0, "larger than 0, up to 1"),  # 0 would keep none
            ("min_p", 0.0, 1.0, "from 0 to 1"),
            ("repetition_penalty", _SMALLEST, _LARGEST, "larger than 0, and finite in float32"),
            ("presence_penalty", -_LARGEST, _LARGEST, "that is finite in float32"),
            ("frequency_penalty", -_LARGEST, _LARGEST, "that is finite in float32"),
        ):
            value = getattr(self, name)
            if not _is_number(value) or not least <= value <= most:
                raise ValueError(f"{name} must be a number {expected}, got {value!r}")
            object.__setattr__(self, name, float(value))
        for name, end in (("top_k", 2**31), ("seed", 2**64)):
            object.__setattr__(self, name, whole(name, getattr(self, name), 0, end - 1))
        if self.penalty_last_n is not None:
            number = whole("penalty_last_n", self.penalty_last_n)
            object.__setattr__(self, "penalty_last_n", number)
        object.__setattr__(self, "logit_bias", _checked_biases(self.logit_bias))

    @property
    def has_penalties(self) -> bool:
        """Whether the tokens so far change logits."""
        subtracted = self.presence_penalty, self.frequency_penalty
        return self.repetition_penalty != 1 or subtracted != (0, 0)

    @property
    def has_edits(self) -> bool:
        """Whether logits are changed before a token is chosen."""
        return self.has_penalties or bool(self.logit_bias)

    def bias(self, token: int, count: int) -> float:
        """Return what is added to the logit of a token that is there so many times."""
        given = self.logit_bias.get(token, 0.0)
        if not count or given == -math.inf:
            return given
        sum_of_all = given - self.presence_penalty - count * self.frequency_penalty
        return min(max(sum_of_all, -_LARGEST), _LARGEST)


def write_sampling(
    arrays: Mapping[str, Array], slot: int, sampling: Sampling, tokens: Sequence[int]
) -> None:
    """Write settings into the arrays of a step, for a request with these tokens so far."""
    for name in PER_REQUEST.keys() - {"num_edits"}:
        arrays[name][slot] = getattr(sampling, name)
    _write_edits(arrays, slot, sampling, tokens)


def note_last_token(
    arrays: Mapping[str, Array], slot: int, sampling: Sampling, tokens: Sequence[int]
) -> None:
    """Let the last of the tokens that a request has got be penalized from now on."""
    if sampling.penalty_last_n is not None:  # the first of those before counts no more
        _write_edits(arrays, slot, sampling, tokens)
        return
    number, token = int(arrays["num_edits"][slot]), tokens[-1]
    edited, biases, penalties = (
        arrays[name][slot] for name in ("edited_tokens", "edit_biases", "edit_penalties")
    )
    (places,) = np.nonzero(edited[:number] == token)
    place = int(places[0]) if places.size else number
    # A token is counted where its number matters.
    count = tokens.count(token) if sampling.frequency_penalty else 1
    edited[place], biases[place] = token, sampling.bias(token, count)
    penalties[place] = sampling.repetition_penalty
    arrays["num_edits"][slot] = max(number, place + 1)


def _write_edits(
    arrays: Mapping[str, Array], slot: int, sampling: Sampling, tokens: Sequence[int]
) -> None:
    counts = Counter(tokens[-(sampling.penalty_last_n or 0) :] if sampling.has_penalties else ())
    edited = [*counts, *(token for token in sampling.logit_bias if token not in counts)]
    arrays["num_edits"][slot] = len(edited)
    arrays["edited_tokens"][slot, : len(edited)] = edited
    biases = [sampling.bias(token, counts[token]) for token in edited]
    arrays["edit_biases"][slot, : len(edited)] = biases
    arrays["edit_penalties"][slot, : len(counts)] = sampling.repetition_penalty
    arrays["edit_penalties"][slot, len(counts) : len(edited)] = 1


def _checked_biases(given: Any) -> dict[int, float]:
    if not isinstance(given, Mapping):
        raise TypeError(f"logit_bias must map tokens to numbers, got {given!r:.80}")
    if len(given) > MOST_BIASES:
        raise ValueError(f"logit_bias may have {MOST_BIASES} tokens, got {len(given)}")
    for token, bias in given.items():
        if not _is_number(bias) or not (abs(bias) <= _LARGEST or bias == -math.inf):
            raise ValueError(
                f"logit_bias of token {token!r} must be a number that is finite in float32, or "
                f"-math.inf, got {bias!r}"
            )
    return {whole("a token of logit_bias", token, 0): float(bias) for token, bias in given.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)

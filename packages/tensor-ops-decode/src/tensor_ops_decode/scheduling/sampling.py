"""How a request's tokens are chosen."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from tensor_ops_decode.arguments import whole
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.nodes.sample import philox
from tensor_ops_decode.program.records import MOST_BIASES, PER_REQUEST
from tensor_ops_decode.scheduling.dry import SequenceBreakers, penalties

__all__ = ["Sampling", "note_last_token", "write_sampling"]

_LARGEST = float(np.finfo(np.float32).max)
# Beyond it, float64 gives neighbouring logits the same probability, and top_k loses their order.
_HOTTEST = 1e6
_SMALLEST = float(np.finfo(np.float32).tiny)
# XTC has random numbers of its own: those behind all that the draws of a sequence have.
_COINS = 2**32


@dataclass(frozen=True)
class Sampling:
    """How the tokens of one request are chosen.

    They act on logits in this order: `logit_bias`, penalties, what a constraint allows, DRY, the
    temperature, `top_k`, `typical_p`, `top_p`, `min_p`, XTC. It is the order of llama.cpp but for
    the temperature, which comes last there: here the cuts behind it see the probabilities with
    which tokens are drawn. Where it is 0 there is nothing to cut. The node ``sample`` of a step
    knows neither DRY nor typical p nor XTC; a token of a request with these is chosen behind it.

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
    typical_p : float
        Tokens are kept until their probabilities sum to more than this, those first whose
        information is closest to the entropy, the mean of all: Meister et al., "Locally typical
        sampling", 2022. 1 keeps all.
    xtc_probability, xtc_threshold : float
        "Exclude top choices": so often, of the tokens that have this probability at least, all but
        the least probable one are dropped. A threshold above 0.5 drops none. It is done for the
        token behind position `i` where Philox of `seed` and ``2**32 + i``, as a fraction of
        ``2**32``, is below `xtc_probability`; the token is drawn by Philox of `seed` and `i`.
    dry_multiplier, dry_base, dry_allowed_length : float, float, int
        DRY, "don't repeat yourself": a token that would go on with a repetition of the last `n`
        tokens has ``dry_multiplier * dry_base ** (n - dry_allowed_length)`` subtracted from its
        logit, if `n` is not below `dry_allowed_length`, as in llama.cpp. A multiplier of 0 changes
        nothing.
    dry_penalty_last_n : int or None
        In how many of the last tokens DRY looks for repetitions; None for all.
    dry_sequence_breakers : collection of sequences of int
        Sequences of tokens that no repetition goes beyond.

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
    typical_p: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: Collection[Sequence[int]] = SequenceBreakers()

    def __post_init__(self) -> None:
        for name, least, most, expected in (
            ("temperature", 0.0, _HOTTEST, "0 or larger, up to 1e6"),
            ("top_p", math.nextafter(0, 1), 1.0, "larger than 0, up to 1"),  # 0 would keep none
            ("min_p", 0.0, 1.0, "from 0 to 1"),
            ("typical_p", math.nextafter(0, 1), 1.0, "larger than 0, up to 1"),
            ("xtc_probability", 0.0, 1.0, "from 0 to 1"),
            ("xtc_threshold", 0.0, 1.0, "from 0 to 1"),
            ("repetition_penalty", _SMALLEST, _LARGEST, "larger than 0, and finite in float32"),
            ("presence_penalty", -_LARGEST, _LARGEST, "that is finite in float32"),
            ("frequency_penalty", -_LARGEST, _LARGEST, "that is finite in float32"),
            ("dry_multiplier", 0.0, _LARGEST, "0 or larger, and finite in float32"),
            ("dry_base", 1.0, _LARGEST, "1 or larger, and finite in float32"),
        ):
            value = getattr(self, name)
            if not _is_number(value) or not least <= value <= most:
                raise ValueError(f"{name} must be a number {expected}, got {value!r}")
            object.__setattr__(self, name, float(value))
        for name, end in (("top_k", 2**31), ("seed", 2**64), ("dry_allowed_length", 2**31)):
            object.__setattr__(self, name, whole(name, getattr(self, name), 0, end - 1))
        for name in ("penalty_last_n", "dry_penalty_last_n"):
            if (number := getattr(self, name)) is not None:
                object.__setattr__(self, name, whole(name, number))
        name = "dry_sequence_breakers"
        object.__setattr__(self, name, SequenceBreakers.checked(name, getattr(self, name)))
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

    @property
    def is_beyond_steps(self) -> bool:
        """Whether tokens are chosen behind a step, for it does not know how."""
        is_cut = self.typical_p < 1 or (self.xtc_probability > 0 and self.xtc_threshold <= 0.5)
        return self.dry_multiplier > 0 or (self.temperature > 0 and is_cut)

    def dry_penalties(self, tokens: Sequence[int]) -> dict[int, np.float32]:
        """Return what DRY subtracts from the logits of some tokens, which follow these."""
        if not self.dry_multiplier:
            return {}
        name = "dry_sequence_breakers"
        return penalties(
            tokens[-(self.dry_penalty_last_n or 0) :],
            self.dry_multiplier,
            self.dry_base,
            self.dry_allowed_length,
            SequenceBreakers.checked(name, self.dry_sequence_breakers),
        )

    def excluded_from(self, position: int) -> float:
        """Return from which probability on XTC excludes tokens behind a position; 1 for none."""
        if not self.xtc_probability or self.xtc_threshold > 0.5:
            return 1.0
        chance = philox(self.seed, _COINS + position) * 2.0**-32
        return self.xtc_threshold if chance < self.xtc_probability else 1.0

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

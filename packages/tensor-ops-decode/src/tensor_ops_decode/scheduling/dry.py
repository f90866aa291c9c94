"""DRY ("don't repeat yourself"): a penalty for the tokens that would go on with a repetition.

Tested by tests/decode/scheduling/test_sampling_dry.py.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tensor_ops_decode.arguments import whole

__all__ = ["SequenceBreakers", "longest_repetitions", "penalties"]

_LARGEST = float(np.finfo(np.float32).max)
# Of bases up to this one, llama.cpp lets the exponent be any; of others, the power is finite.
_LEAST_CLAMPED = np.float32(1.000001)
_LOG_OF_LARGEST = np.float32(88.7228391)


class SequenceBreakers(Collection[tuple[int, ...]]):
    """The sequences of tokens at which repetitions end, by the first token of each."""

    def __init__(self, sequences: Iterable[tuple[int, ...]] = ()) -> None:
        self._sequences = frozenset(sequences)
        tails: dict[int, list[tuple[int, ...]]] = {}
        for head, *tail in sorted(self._sequences):
            tails.setdefault(head, []).append(tuple(tail))
        self._tails = tails
        self._most = max(map(len, self._sequences), default=1) - 1
        self._alone = frozenset(head for head, found in tails.items() if () in found)

    @classmethod
    def checked(cls, name: str, given: Any) -> "SequenceBreakers":
        """Return what an argument has, or raise a TypeError or ValueError that names it."""
        if isinstance(given, cls):
            return given
        expected = f"{name} must have sequences of tokens"
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise TypeError(f"{expected}, got {given!r:.80}")
        sequences = []
        for each in given:
            if isinstance(each, (str, bytes)) or not isinstance(each, Iterable):
                raise TypeError(f"{expected}, got {each!r:.80} in it")
            sequences.append(tuple(whole(f"a token of {name}", token, 0) for token in each))
            if not sequences[-1]:
                raise ValueError(f"{expected} that are not empty, got {each!r:.80} in it")
        return cls(sequences)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._sequences

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return iter(self._sequences)

    def __len__(self) -> int:
        return len(self._sequences)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SequenceBreakers) and self._sequences == other._sequences

    def __hash__(self) -> int:
        return hash(self._sequences)

    def __repr__(self) -> str:
        return repr(sorted(self._sequences))

    @property
    def alone(self) -> frozenset[int]:
        """The tokens that are such a sequence by themselves."""
        return self._alone

    def tokens_since(self, reversed_tokens: Sequence[int], most: int) -> int:
        """Return how many tokens there are behind the last of these sequences, `most` at most.

        The tokens are given from the last one back. Of sequences that begin at the same token, the
        longest counts. One that begins later counts alone, even if one before it ends later.
        """
        for place, token in enumerate(reversed_tokens[: most + self._most + 1]):
            if token in self._tails:
                fitting = [
                    len(tail)
                    for tail in self._tails[token]
                    if len(tail) <= place
                    and tail == tuple(reversed_tokens[place - len(tail) : place][::-1])
                ]
                if fitting:
                    return min(place - max(fitting), most)
        return most


def penalties(
    tokens: Sequence[int],
    multiplier: float,
    base: float,
    allowed_length: int,
    breakers: SequenceBreakers,
) -> dict[int, np.float32]:
    r"""Return what DRY subtracts from the logits of tokens, which follow these.

    A token that would make a repetition of the last :math:`n` tokens one of :math:`n + 1`, where
    :math:`n` is the largest such number, gets the penalty

    .. math:: multiplier \cdot base^{\min(n - allowed\_length, m)}

    if :math:`n` is at least `allowed_length`, and the token itself breaks no sequence. A repetition
    has no tokens before a breaker, nor that one's. The largest exponent :math:`m` is the one whose
    power float32 holds. A penalty is at most the largest number of float32.

    References
    ----------
    The sampler ``dry`` of llama.cpp, ``src/llama-sampler.cpp``, whose source is koboldcpp's pull
    request 982 by pi6am; the idea is p-e-w's, pull request 5677 of text-generation-webui.

    Examples
    --------
    >>> found = penalties([1, 2, 3, 9, 1, 2, 3], 0.5, 2.0, 2, SequenceBreakers())
    >>> {token: float(each) for token, each in found.items()}  # of three tokens, one above two
    {9: 1.0}
    """
    if len(tokens) <= allowed_length:
        return {}
    backwards = tokens[::-1]
    longest = longest_repetitions(backwards, allowed_length)
    if not longest:
        return {}
    most = breakers.tokens_since(backwards, max(longest.values()))
    if most < allowed_length:
        return {}
    base32 = np.float32(base)
    clamp = int(_LOG_OF_LARGEST / np.log(base32)) if base32 > _LEAST_CLAMPED else 0
    found = {}
    for token in longest.keys() - breakers.alone:
        exponent = min(longest[token], most) - allowed_length
        with np.errstate(over="ignore"):
            power = np.float64(base32) ** (min(exponent, clamp) if clamp else exponent)
            penalty = np.float64(np.float32(multiplier)) * power
        found[token] = np.float32(min(penalty, _LARGEST))
    return found


def longest_repetitions(backwards: Sequence[int], least: int) -> dict[int, int]:
    """Return how many of the last tokens were there before a token, for each that has followed.

    The tokens are given from the last one back. Numbers below `least` are left out. This is the
    Z-algorithm, which compares each token about once: where it is known how many tokens from one on
    are as those at the beginning, they need not be compared again.

    Examples
    --------
    >>> longest_repetitions("abccbcyabc"[::-1], 1) == {"c": 3, "b": 1, "y": 2}
    True
    """
    count = len(backwards)
    matches = [0] * count
    longest = dict.fromkeys(backwards[:-1], 0) if not least else {}
    # From `start` to `end`, tokens are as those at the beginning.
    place, start, end = 1, 0, 0
    while place < count:
        if place < end and matches[place - start] < end - place:
            match = matches[place - start]
        else:
            if place >= end:
                try:
                    place = backwards.index(backwards[0], place)  # all others match nothing
                except ValueError:
                    break
                end = place + 1
            while end < count and backwards[end] == backwards[end - place]:
                end += 1
            start, match = place, end - place
        matches[place] = match
        following = backwards[place - 1]
        if match >= least and match > longest.get(following, 0):
            longest[following] = match
        place += 1
    return longest

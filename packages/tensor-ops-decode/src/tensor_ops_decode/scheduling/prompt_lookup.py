"""Guesses of the tokens that come next, from what a sequence has said before."""

import itertools
from collections.abc import Sequence

__all__ = ["PromptLookup", "accepted"]


class PromptLookup:
    """Finds what followed the last few tokens of a growing sequence where they stood before.

    So many as `length` must be the same. Source: Saxena, "Prompt lookup decoding", 2023.
    """

    def __init__(self, length: int = 3) -> None:
        self._length = length
        self._ends: dict[tuple[int, ...], int] = {}  # where a run of tokens was last
        self._num_seen = length

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """Return as many guesses as are asked for, or none.

        The tokens are those of the call before, and what was added to them.
        """
        length = self._length
        for end in range(self._num_seen, len(tokens)):
            self._ends[tuple(tokens[end - length : end])] = end
        self._num_seen = max(self._num_seen, len(tokens))
        start = self._ends.get(tuple(tokens[-length:]))
        if start is None:
            return []
        # A repetition goes on past the end.
        period = len(tokens) - start
        return [tokens[start + index % period] for index in range(count)]


def accepted(
    chosen: Sequence[int], guesses: Sequence[int], end_tokens: frozenset[int]
) -> list[int]:
    """Return the tokens that a step chose, as far as the guesses before them are right.

    Each is what the model would have chosen without guesses: a wrong one has no part in it.

    Examples
    --------
    >>> accepted([5, 6, 7], [5, 9], frozenset())
    [5, 6]
    """
    tokens: list[int] = []
    for token, guess in itertools.zip_longest(chosen, guesses):
        tokens.append(token)
        if token != guess or guess in end_tokens:
            break
    return tokens

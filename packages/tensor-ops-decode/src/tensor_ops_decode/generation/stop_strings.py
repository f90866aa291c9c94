"""Stop strings: where one begins in an answer, and how much of its text may be of one.

They are looked for in what the model says with the names of its special tokens, as transformers
does: these names are none of the answer's text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tensor_ops_decode.text.sorted_texts import SortedTexts

if TYPE_CHECKING:
    from tensor_ops_decode.text import Tokenizer

__all__ = ["StopSearch", "StopStrings"]


class StopStrings:
    """The stop strings of all answers of a call."""

    def __init__(self, stops: Iterable[str]) -> None:
        given = tuple(stops)
        self._forward = SortedTexts(given)
        self._backward = SortedTexts(stop[::-1] for stop in given)

    def __bool__(self) -> bool:
        return self._forward.longest > 0

    def place(self, text: str, known: int) -> int | None:
        """Return where the first stop string begins that ends after so many known characters."""
        mirrored = text[::-1]
        lengths = (
            (end, self._backward.length_in(mirrored, len(text) - end))
            for end in range(known + 1, len(text) + 1)
        )
        return min((end - length for end, length in lengths if length), default=None)

    def beginning(self, text: str) -> int:
        """Return from where to its end a text may be the beginning of a stop string."""
        places = range(len(text))
        return next((i for i in places if self._forward.go_on_after(text, i)), len(text))


class StopSearch:
    """Looks for stop strings in one answer, as its tokens come.

    `found` says whether there is one, and `num_held` how many characters at the end of the answer's
    text are of a stop string, or may be.
    """

    def __init__(self, stops: StopStrings, tokenizer: Tokenizer) -> None:
        self._stops = stops
        self._stream = tokenizer.stream(skip_special_tokens=False)
        self._tokenizer = tokenizer
        self._said = ""
        self._is_text: list[bool] = []  # for each character of what was said; the others are names
        self.found, self.num_held = False, 0

    def push(self, token: int) -> None:
        """Take a token of the answer."""
        is_name = self._tokenizer.is_special(token)
        said = self._stream.push(token)
        name = min(len(self._tokenizer.token(token)), len(said)) if is_name else 0
        self._take(said, [True] * (len(said) - name) + [False] * name)

    def finish(self) -> None:
        """Take what was held back of the last character, which nothing completes."""
        said = self._stream.finish()
        self._take(said, [True] * len(said))

    def _take(self, said: str, is_text: list[bool]) -> None:
        known = len(self._said)
        # The text that more bytes might still change ends a stop string all the same.
        pending = self._stream.pending()
        self._said += said
        self._is_text += is_text
        place = self._stops.place(self._said + pending, known)
        if place is not None:
            self.found = True
            self.num_held = sum([*self._is_text, *(True for _ in pending)][place:])
            return
        place = self._stops.beginning(self._said)
        self._said, self._is_text = self._said[place:], self._is_text[place:]
        self.num_held = sum(self._is_text)

"""Texts in order, in which those that begin alike stand together and are found by bisection."""

from bisect import bisect_right
from collections.abc import Iterable

__all__ = ["SortedTexts"]

_HEAD = 64  # characters, that tell nearly all texts apart; the rest may be long to copy


class SortedTexts:
    """Texts that may be many and long: they take memory in proportion to their characters.

    None of them is empty, and `longest` is the most characters of one.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = sorted(set(texts))
        self.longest = max(map(len, self._texts), default=0)
        # For each text, where the longest other one is that it begins with; -1 if there is none.
        self._shorter: list[int] = []
        beginnings: list[int] = []
        for place, text in enumerate(self._texts):
            while beginnings and not text.startswith(self._texts[beginnings[-1]]):
                beginnings.pop()
            self._shorter.append(beginnings[-1] if beginnings else -1)
            beginnings.append(place)

    def length_in(self, text: str, start: int = 0) -> int:
        """Return the length of the longest of the texts that is in another at a place, or 0."""
        place, goes_on = self._find(text[start : start + _HEAD])
        if goes_on:
            place, _ = self._find(text[start : start + self.longest])
        # Whatever stands between a text and what begins with it, begins with it too.
        place -= 1
        while place >= 0 and not text.startswith(self._texts[place], start):
            place = self._shorter[place]
        return len(self._texts[place]) if place >= 0 else 0

    def go_on_after(self, text: str, start: int = 0) -> bool:
        """Return whether one of the texts begins with the rest of another, and is longer."""
        _, goes_on = self._find(text[start : start + _HEAD])
        if goes_on and len(text) - start > _HEAD:
            _, goes_on = self._find(text[start:])
        return goes_on

    def _find(self, text: str) -> tuple[int, bool]:
        """Return where a text's place is, and whether what follows there begins with it."""
        place = bisect_right(self._texts, text)
        return place, place < len(self._texts) and self._texts[place].startswith(text)

"""The names of special tokens: where they are in a text, and what could become one."""

from collections.abc import Iterable

from tensor_ops_decode.text.sorted_texts import SortedTexts

__all__ = ["Place", "SpecialNames"]

Place = tuple[int, int]


class SpecialNames:
    """The names of special tokens.

    The `others` are names of tokens that are read in every text: where one of these is, there is no
    special one.
    """

    def __init__(self, special: Iterable[str], others: Iterable[str] = ()) -> None:
        self._special = frozenset(special)
        names = self._special | frozenset(others)
        self._all = SortedTexts(names)
        self._first = frozenset(
            each for name in self._special for each in (name[0], name[0].lower(), name[0].upper())
        )
        self._first_of_all = frozenset(name[0] for name in names)
        folded = [name.lower() for name in self._special]
        self._folded = SortedTexts(folded)
        self._mirrored = SortedTexts(name[::-1] for name in folded)
        self._first_folded = frozenset(name[0] for name in folded)
        self._last_folded = frozenset(name[-1] for name in folded)

    def may_be_in(self, text: str) -> bool:
        """Return whether a text has a character that a name begins with."""
        return not self._first.isdisjoint(text)

    def places(self, text: str) -> list[Place]:
        """Return where the names are, from the left, the longest one at each place."""
        found, end = [], 0
        for place, character in enumerate(text):
            if place < end or character not in self._first_of_all:
                continue
            length = self._all.length_in(text, place)
            end = place + length
            if text[place:end] in self._special:
                found.append((place, end))
        return found

    def broken(self, text: str, mark: str) -> str:
        """Return a text with a mark inside each name, and inside each part of a name at its ends.

        Parts count because a template may join two texts to a name: they are the beginning of a
        name at the end of the text, and the end of one at its beginning, surrounding spaces aside.
        Names are found in any case, since a template may change it.
        """
        folded = text.lower() if len(text.lower()) == len(text) else text
        cuts = {
            place + 1
            for place, character in enumerate(text)
            if character in self._first and self._folded.length_in(folded, place)
        }
        start, inner = len(text) - len(text.lstrip()), folded.strip()
        mirrored, longest = inner[::-1], self._folded.longest
        for place in range(max(len(inner) - longest, 0), len(inner)):
            if inner[place] in self._first_folded and self._folded.go_on_after(inner, place):
                cuts.add(start + place + 1)
            if mirrored[place] in self._last_folded and self._mirrored.go_on_after(mirrored, place):
                cuts.add(start + len(inner) - place - 1)
        ends = [*sorted(cuts), len(text)]
        return mark.join(text[i:j] for i, j in zip([0, *ends], ends, strict=False))

    def without_begin(self, text: str, neutral: str) -> str:
        """Return a text with another character for each that a name begins with."""
        return "".join(neutral if each in self._first else each for each in text)

"""The names of special tokens: where they are in a text, and what could become one."""

from collections.abc import Iterable

__all__ = ["Place", "SpecialNames"]

Place = tuple[int, int]


class SpecialNames:
    """The names of special tokens.

    Parameters
    ----------
    special : iterable of str
        The names.
    others : iterable of str
        Those of tokens that are read in every text. Where one of these is, there is no special one.
    """

    def __init__(self, special: Iterable[str], others: Iterable[str] = ()) -> None:
        self._special = frozenset(special)
        self._all = self._special | frozenset(others)
        self._first = frozenset(
            each for name in self._special for each in (name[0], name[0].lower(), name[0].upper())
        )
        self._first_of_all = frozenset(name[0] for name in self._all)
        self._lengths = sorted({len(name) for name in self._all}, reverse=True)
        self._folded = frozenset(name.lower() for name in self._special)
        self._begins = {name[:end] for name in self._folded for end in range(1, len(name))}
        self._ends = {name[start:] for name in self._folded for start in range(1, len(name))}

    def may_be_in(self, text: str) -> bool:
        """Return whether a text has a character that a name begins with."""
        return not self._first.isdisjoint(text)

    def places(self, text: str) -> list[Place]:
        """Return where the names are, from the left, the longest one at each place."""
        found, place = [], 0
        while place < len(text):
            end = place + 1
            if text[place] in self._first_of_all:
                for length in self._lengths:
                    name = text[place : place + length]
                    if name in self._all:
                        end = place + length
                        if name in self._special:
                            found.append((place, end))
                        break
            place = end
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
            if character in self._first
            and any(folded[place : place + length] in self._folded for length in self._lengths)
        }
        start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        for length in range(1, min(max(self._lengths, default=0), end - start) + 1):
            if folded[end - length : end] in self._begins:
                cuts.add(end - length + 1)
            if folded[start : start + length] in self._ends:
                cuts.add(start + length - 1)
        ends = [*sorted(cuts), len(text)]
        return mark.join(text[i:j] for i, j in zip([0, *ends], ends, strict=False))

    def without_begin(self, text: str, neutral: str) -> str:
        """Return a text with another character for each that a name begins with."""
        return "".join(neutral if each in self._first else each for each in text)

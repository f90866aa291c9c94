"""Marks in a text, found whatever white space stands around and within them.

Models write the marks of their chat templates, such as ``<tool_call>\\n{"name": "``, with more or
fewer line breaks and spaces than the templates do. A mark may have holes for what differs from one
call to the next.
"""

import re
from collections.abc import Iterable

__all__ = ["ID_HOLE", "INDEX_HOLE", "PARTIAL", "MarkSearch", "end_of_mark", "without_space"]

ID_HOLE = "\ue000"  # stands in a mark for the id of a call
INDEX_HOLE = "\ue001"  # stands in a mark for the number of a call
PARTIAL = -1

_IN_HOLE = {ID_HOLE: re.compile(r"[\w.:-]"), INDEX_HOLE: re.compile(r"[0-9]")}


def end_of_mark(text: str, place: int, mark: str) -> int | None:
    """Return where a mark ends that is in a text at a place, white space aside.

    It is None if the mark is not there, and `PARTIAL` if the text ends before that is known.
    """
    for character in mark:
        if character.isspace():
            continue
        while place < len(text) and text[place].isspace():
            place += 1
        if place == len(text):
            return PARTIAL
        hole = _IN_HOLE.get(character)
        if hole is None:
            if text[place] != character:
                return None
            place += 1
            continue
        start = place
        while place < len(text) and hole.match(text[place]):
            place += 1
        if place == len(text):
            return PARTIAL
        if place == start:
            return None
    return place


def without_space(text: str) -> str:
    """Return a text without its white space, by which marks are the same or not."""
    return "".join(text.split())


class MarkSearch:
    """Finds where one of several marks may begin; the marks are not empty, nor begin with a hole.

    A text in which marks are looked for may go on later: `begin` is where the first mark begins
    that is there, or may be, from a place on.
    """

    def __init__(self, marks: Iterable[str]) -> None:
        self.marks = [mark.strip() for mark in marks]
        firsts = {mark[0] for mark in self.marks}
        self._first = re.compile("|".join(map(re.escape, sorted(firsts))) or "(?!)")

    def begin(self, text: str, place: int) -> tuple[int, int, int]:
        """Return where a mark begins, which it is, and where it ends.

        The end is `PARTIAL` if that is not known yet. Without a mark, the beginning is the end of
        the text. If several marks are at one place, the first of them counts.
        """
        for match in self._first.finditer(text, place):
            for number, mark in enumerate(self.marks):
                end = end_of_mark(text, match.start(), mark)
                if end is not None:
                    return match.start(), number, end
        return len(text), 0, PARTIAL

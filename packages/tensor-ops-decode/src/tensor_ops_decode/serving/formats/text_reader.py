"""Reads an answer that comes in pieces, in generators that stop where they need more of it."""

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

from tensor_ops_decode.serving.formats.answer_deltas import Delta
from tensor_ops_decode.serving.formats.loose_text import PARTIAL, MarkSearch, end_of_mark

__all__ = ["TextReader", "Reading"]

_T = TypeVar("_T")
Reading: TypeAlias = Generator[None, None, _T]


class TextReader:
    """The text of an answer as far as it has come, and the place up to which it is read.

    A method that is a generator yields where it needs more text. What it finds depends on the whole
    text alone, not on the pieces that it came in.
    """

    def __init__(self) -> None:
        self.text, self.place = "", 0
        self.is_whole = False  # nothing follows the text
        self.deltas: list[Delta] = []

    def push(self, text: str) -> None:
        """Take more text."""
        self.text += text

    def take(self) -> list[Delta]:
        """Return the deltas since the last time."""
        taken, self.deltas = self.deltas, []
        return taken

    def more(self) -> Reading[bool]:
        """Wait for more text; return whether there is any."""
        known = len(self.text)
        while len(self.text) == known and not self.is_whole:
            yield
        return len(self.text) > known

    def peek(self) -> Reading[str]:
        """Return the next character, or nothing at the end."""
        if self.place == len(self.text):
            yield from self.more()
        return self.text[self.place : self.place + 1]

    def skip_space(self) -> Reading[str]:
        """Read white space; return the character behind it, or nothing at the end."""
        while (character := (yield from self.peek())).isspace():
            self.place += 1
        return character

    def skip(self, text: str) -> Reading[None]:
        """Read characters as long as they are those of a text."""
        for character in text:
            if (yield from self.peek()) != character:
                return
            self.place += 1

    def match(self, *marks: str) -> Reading[int | None]:
        """Read the first of the marks that is here, white space aside; return which it is.

        If none is, nothing is read. The beginning of a mark at the end of the answer is none.
        """
        for number, mark in enumerate(marks):
            while (end := end_of_mark(self.text, self.place, mark)) == PARTIAL:
                if not (yield from self.more()):
                    break
            if end is not None and end != PARTIAL:
                self.place = end
                return number
        return None

    def is_cut(self, *marks: str) -> bool:
        """Return whether the rest of the text is the beginning of a mark, or white space."""
        return any(end_of_mark(self.text, self.place, mark) == PARTIAL for mark in marks)

    def until(
        self, search: MarkSearch, emit: Callable[[str], None] | None, start: int | None = None
    ) -> Reading[tuple[int, int, int] | None]:
        """Read text up to a mark, and the mark; emit what is before the white space before it.

        Return which mark it is, where the text before it ends and where it begins. Without a mark,
        all text is read and emitted; None is returned then. A mark counts only from the place
        `start` on.
        """
        scan = self.place if start is None else start
        while True:
            begin, number, end = search.begin(self.text, scan)
            if emit is not None:
                self._emit_until(max(begin, scan), emit)
            if end != PARTIAL:
                before, self.place = self.place, end
                return number, before, begin
            scan = begin
            if (yield from self.more()):
                continue
            if begin < len(self.text):  # the beginning of a mark, which nothing completes
                scan = begin + 1
                continue
            if emit is not None and self.place < len(self.text):
                emit(self.text[self.place :])
            self.place = len(self.text)
            return None

    def _emit_until(self, end: int, emit: Callable[[str], None]) -> None:
        """Emit text but for the white space at its end."""
        while end > self.place and self.text[end - 1].isspace():
            end -= 1
        if end > self.place:
            emit(self.text[self.place : end])
            self.place = end

    def json_value(self, emit: Callable[[str], None] | None = None) -> Reading[str]:
        """Read a JSON value, white space before it aside; return its text, which may be wrong.

        An object or a list ends with its last bracket, a text with its quote, and another value
        before what cannot be in one. Pieces of it are emitted as they come.
        """
        yield from self.skip_space()
        start = self.place
        scan = _JsonScan()
        while True:
            known = self.place
            while self.place < len(self.text) and not scan.is_over(self.text[self.place]):
                self.place += 1
            if emit is not None and self.place > known:
                emit(self.text[known : self.place])
            if self.place < len(self.text) or not (yield from self.more()):
                return self.text[start : self.place]


class _JsonScan:
    """Finds the end of a JSON value, character by character."""

    def __init__(self) -> None:
        self._depth, self._is_quoted, self._is_escaped = 0, False, False
        self._is_complete = False

    def is_over(self, character: str) -> bool:
        """Return whether the value ended before a character; take the character otherwise."""
        if self._is_complete:
            return True
        if self._is_quoted:
            self._is_quoted = self._is_escaped or character != '"'
            self._is_escaped = character == "\\" and not self._is_escaped
            self._is_complete = not self._is_quoted and self._depth == 0
        elif character == '"':
            self._is_quoted = True
        elif character in "{[":
            self._depth += 1
        elif self._depth == 0:
            return character.isspace() or character in ",]}<`"
        elif character in "]}":
            self._depth -= 1
            self._is_complete = self._depth == 0
        return False

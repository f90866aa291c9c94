"""Reads answers that are messages with headers: reasoning, calls and text in channels."""

import re
from collections.abc import Callable

from tensor_ops_decode.serving.formats.answer_deltas import ContentDelta, ReasoningDelta
from tensor_ops_decode.serving.formats.call_reader import CallReader
from tensor_ops_decode.serving.formats.call_syntax import ChannelSyntax
from tensor_ops_decode.serving.formats.loose_text import MarkSearch
from tensor_ops_decode.serving.formats.text_reader import Reading, TextReader

__all__ = ["read_channels"]

_RECIPIENT = re.compile(r"to=(?:functions\.)?([\w./-]+)")


def read_channels(
    reader: TextReader, calls: CallReader, syntax: ChannelSyntax, prompt: str
) -> Reading[None]:
    """Read the messages of an answer, the first of which the prompt may have begun."""
    header = prompt.rpartition(syntax.start)[2]
    messages = _Messages(reader, calls, syntax)
    if syntax.message not in header:
        header = yield from messages.header()
    while (yield from reader.peek()):
        yield from messages.body(header)
        yield from messages.next_role()
        header = yield from messages.header()


class _Messages:
    """Reads the parts of messages."""

    def __init__(self, reader: TextReader, calls: CallReader, syntax: ChannelSyntax) -> None:
        self._reader, self._calls, self._syntax = reader, calls, syntax
        self._ends = MarkSearch([syntax.end, syntax.start])

    def header(self) -> Reading[str]:
        """Read the header of a message, behind its role; it is empty if there is none."""
        reader, syntax = self._reader, self._syntax
        start = reader.place
        marks = (syntax.channel, "to=", syntax.message)
        is_header = (yield from reader.match(*marks)) is not None
        reader.place = start
        if not is_header:
            return ""
        found = yield from reader.until(MarkSearch([syntax.message]), None)
        header = reader.text[start : reader.place]
        if found is None and not header.lstrip().startswith(syntax.channel):
            self._say(header)  # a text that only looks like a header
        return header

    def body(self, header: str) -> Reading[None]:
        """Read a message up to its end."""
        reader = self._reader
        emit = self._emit_of(header)
        recipient = _RECIPIENT.search(header)
        is_known = recipient is not None and self._calls.knows(recipient[1])
        if is_known and (yield from reader.skip_space()) == "{":
            yield from self._calls.arguments(recipient[1] if recipient else "")
            emit = None
        found = yield from reader.until(self._ends, emit)
        if found is not None and found[0] == 1:
            reader.place = found[2]

    def _emit_of(self, header: str) -> Callable[[str], None] | None:
        """Return what emits the text of a message."""
        after = header.partition(self._syntax.channel)[2].lstrip()
        if after.startswith(self._syntax.reasoning):
            return lambda text: self._reader.deltas.append(ReasoningDelta(text))
        return self._say

    def _say(self, text: str) -> None:
        self._reader.deltas.append(ContentDelta(text))

    def next_role(self) -> Reading[None]:
        """Read what begins the next message, up to its role."""
        reader, syntax = self._reader, self._syntax
        yield from reader.match(syntax.end)
        if (yield from reader.match(syntax.start)) is not None:
            yield from reader.match(syntax.role)

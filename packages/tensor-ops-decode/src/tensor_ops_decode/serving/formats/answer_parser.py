"""Parses an answer as it comes: reasoning, calls of tools, and text for the user."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from tensor_ops_decode.serving.formats.answer_deltas import ContentDelta, Delta, ReasoningDelta
from tensor_ops_decode.serving.formats.call_reader import CallReader, schemas_of
from tensor_ops_decode.serving.formats.call_syntax import (
    CallSyntax,
    ChannelSyntax,
    ReasoningSyntax,
)
from tensor_ops_decode.serving.formats.channel_parser import read_channels
from tensor_ops_decode.serving.formats.loose_text import MarkSearch, without_space
from tensor_ops_decode.serving.formats.text_reader import Reading, TextReader

__all__ = ["AnswerParser", "begins_in_reasoning"]


class AnswerParser:
    """Finds the parts of one answer, whose text comes in pieces of any length.

    All deltas together are the same for all ways to cut the text, but for how texts are cut. Text
    is returned as soon as it can be no part of a mark any more.

    Parameters
    ----------
    calls : CallSyntax, optional
        How calls are written; without, there are none.
    reasoning : ReasoningSyntax, optional
    channels : ChannelSyntax, optional
        Of answers that are messages with headers; there are calls if there are tools.
    tools : sequence of mapping
        Those that may be called, as OpenAI has them.
    prompt : str
        The text that the answer follows, which may have begun the reasoning.
    """

    def __init__(
        self,
        *,
        calls: CallSyntax | None,
        reasoning: ReasoningSyntax | None,
        channels: ChannelSyntax | None,
        tools: Sequence[Mapping[str, Any]],
        prompt: str,
    ) -> None:
        self._reader = TextReader()
        self._calls = CallReader(self._reader, schemas_of(tools))
        self._syntax = calls if tools else None
        self._reasoning = reasoning
        self._is_in_reasoning = reasoning is not None and begins_in_reasoning(reasoning, prompt)
        self._run: Generator[None, None, None] = (
            self._parts()
            if channels is None
            else read_channels(self._reader, self._calls, channels, prompt)
        )

    def push(self, text: str) -> list[Delta]:
        """Take more of the answer's text; return what is known of it now."""
        self._reader.push(text)
        next(self._run, None)
        return self._reader.take()

    def finish(self) -> list[Delta]:
        """Return what was held back, as nothing follows it."""
        self._reader.is_whole = True
        next(self._run, None)
        return self._reader.take()

    def _say(self, text: str) -> None:
        self._reader.deltas.append(ContentDelta(text))

    def _think(self, text: str) -> None:
        self._reader.deltas.append(ReasoningDelta(text))

    def _parts(self) -> Reading[None]:
        if self._reasoning is not None:
            yield from self._thoughts(self._reasoning)
        if self._syntax is None:
            while (yield from self._reader.peek()):
                self._say(self._reader.text[self._reader.place :])
                self._reader.place = len(self._reader.text)
            return
        yield from self._content(self._syntax)

    def _thoughts(self, syntax: ReasoningSyntax) -> Reading[None]:
        """Read reasoning, if there is any; the white space around it is not part of it."""
        reader = self._reader
        place = reader.place
        if (yield from reader.match(syntax.start)) is None:
            reader.place = place
            if not self._is_in_reasoning:
                return
        yield from reader.skip_space()
        if (yield from reader.until(MarkSearch([syntax.end]), self._think)) is not None:
            yield from reader.skip_space()

    def _content(self, syntax: CallSyntax) -> Reading[None]:
        """Read text and calls up to the end of the answer."""
        reader = self._reader
        start = syntax.start.strip()
        if not start:
            # Nothing but the calls themselves tells that they are some, and they come first.
            yield from self._bare_calls(syntax)
        search = MarkSearch([start] if start else [])
        scan = None
        while (found := (yield from reader.until(search, self._say, scan))) is not None:
            _, before, begin = found
            scan = None
            if not (yield from self._series(syntax)):
                reader.place, scan = before, begin + 1

    def _bare_calls(self, syntax: CallSyntax) -> Reading[None]:
        """Read calls that nothing begins; models write a semicolon between several."""
        reader = self._reader
        place, mark = reader.place, ""
        while (yield from reader.match(mark)) is not None:
            if (yield from reader.skip_space()) != "{" or not (yield from self._series(syntax)):
                break
            place, mark = reader.place, ";"
        reader.place = place

    def _series(self, syntax: CallSyntax) -> Reading[bool]:
        """Read calls up to where text may follow; return whether there is one."""
        reader = self._reader
        start, end = without_space(syntax.start), without_space(syntax.end)
        ends = [syntax.end]
        again = ""  # what begins another call behind the end of a series
        if syntax.between is not None:
            ends.append(syntax.between)
            between = without_space(syntax.between)
            if between.startswith(end) and between != end + start:
                again = between[len(end) :]
        has_call, place = False, reader.place
        while (yield from self._calls.read(syntax.call, ends)):
            has_call, place = True, reader.place
            found = yield from reader.match(*ends)
            if found is None:
                if reader.is_cut(*ends):
                    reader.place = len(reader.text)
                return True
            if found == 0:
                yield from reader.skip_space()
                place = reader.place
                if not again or (yield from reader.match(again)) is None:
                    return True
        reader.place = place
        return has_call


def begins_in_reasoning(syntax: ReasoningSyntax, prompt: str) -> bool:
    """Return whether a prompt ends with what begins reasoning."""
    start = syntax.start.strip()
    return bool(start) and prompt.rstrip().endswith(start)

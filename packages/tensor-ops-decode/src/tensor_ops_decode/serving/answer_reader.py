"""An answer as the fields of a message: its content, its reasoning, and calls of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensor_ops_decode.serving.formats.answer_deltas import (
    CallDelta,
    ContentDelta,
    Delta,
    ReasoningDelta,
    joined,
)

if TYPE_CHECKING:
    from tensor_ops_decode.serving.formats.answer_format import AnswerFormat

__all__ = ["AnswerReader"]


class AnswerReader:
    """Reads the text of one answer, piece by piece.

    Without tools, calls are text. Calls beyond the first `most_calls` are left out.
    """

    def __init__(
        self,
        known: AnswerFormat,
        tools: Sequence[Mapping[str, Any]],
        prompt: str,
        most_calls: int | None = None,
    ) -> None:
        self._format, self._most_calls = known, most_calls
        self._parser = known.parser(tools, prompt)
        self._texts: dict[str, str] = {}
        self._calls: list[dict[str, Any]] = []

    def push(self, text: str) -> list[dict[str, Any]]:
        """Return what a piece of text adds to the message, as the deltas of a stream."""
        return self._read(self._parser.push(text))

    def finish(self) -> list[dict[str, Any]]:
        """Return what is left when the answer has ended."""
        return self._read(self._parser.finish())

    def message(self) -> dict[str, Any]:
        """Return the whole message."""
        found: dict[str, Any] = {"role": "assistant", "refusal": None, "content": None}
        found |= self._texts
        if self._calls:
            found["tool_calls"] = self._calls
        elif found["content"] is None:
            found["content"] = ""
        return found

    def reason(self, reason: str) -> str:
        """Return why the answer has ended, as clients know it."""
        return "tool_calls" if self._calls and reason == "stop" else reason

    def _read(self, deltas: list[Delta]) -> list[dict[str, Any]]:
        return [found for delta in joined(deltas) if (found := self._field(delta)) is not None]

    def _field(self, delta: Delta) -> dict[str, Any] | None:
        if isinstance(delta, ContentDelta | ReasoningDelta):
            name = "content" if isinstance(delta, ContentDelta) else "reasoning_content"
            self._texts[name] = self._texts.get(name, "") + delta.text
            return {name: delta.text}
        if self._most_calls is not None and delta.index >= self._most_calls:
            return None
        if isinstance(delta, CallDelta):
            function = {"name": delta.name, "arguments": ""}
            call_id = self._format.call_id(delta.name, delta.index)
            call = {"id": call_id, "type": "function", "function": function}
            self._calls.append(call)
            return {"tool_calls": [{"index": delta.index, **call, "function": dict(function)}]}
        self._calls[delta.index]["function"]["arguments"] += delta.text
        return {"tool_calls": [{"index": delta.index, "function": {"arguments": delta.text}}]}

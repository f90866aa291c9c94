"""An answer as the fields of a message: its content, its reasoning, and the calls of tools."""

from __future__ import annotations

from typing import Any

__all__ = ["AnswerReader"]


class AnswerReader:
    """Reads the text of one answer, piece by piece."""

    def __init__(self) -> None:
        self._content = ""

    def push(self, text: str) -> list[dict[str, Any]]:
        """Return what a piece of text adds to the message."""
        self._content += text
        return [{"content": text}] if text else []

    def finish(self) -> list[dict[str, Any]]:
        """Return what is left when the answer has ended."""
        return []

    def message(self) -> dict[str, Any]:
        """Return the whole message."""
        return {"role": "assistant", "content": self._content, "refusal": None}

    def reason(self, reason: str) -> str:
        """Return why the answer has ended, as clients know it."""
        return reason

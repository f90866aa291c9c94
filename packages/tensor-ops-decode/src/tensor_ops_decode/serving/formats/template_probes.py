"""Texts of a chat template, written for messages that are made up here.

Names, keys and values that no template has of itself are given to it, so that what stands around
them in its text is found.
"""

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tensor_ops_decode.serving.formats.loose_text import ID_HOLE

__all__ = [
    "CONTENT",
    "ID",
    "INNER",
    "INNER_KEY",
    "KEYS",
    "NAMES",
    "NUMBER",
    "REASONING",
    "TEXTS",
    "TOOLS",
    "Render",
    "TemplateProbes",
    "WrittenCalls",
    "common_begin",
    "common_end",
    "pieces_between",
]

Render: TypeAlias = Callable[..., str]

USER, CONTENT, REASONING = "zqUserAsks", "zqAnswerSays", "zqThoughtsAre"
NAMES = ("zq_first_tool", "zq_second_tool")
KEYS = ("zq_key_a", "zq_key_b", "zq_key_c")
TEXTS = ("zqTextA", "zqTextB")
NUMBER, INNER_KEY, INNER = 31415926, "zq_inner", 27182818
ID = "zqId00001"
_IDS = (ID, "zqId00002")
_NAMED_IDS = tuple(f"functions.{name}:{index}" for index, name in enumerate(NAMES))
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Does it.",
            "parameters": {
                "type": "object",
                "properties": {
                    KEYS[0]: {"type": "string", "description": "A text."},
                    KEYS[1]: {"type": "integer", "description": "A number."},
                    KEYS[2]: {"type": "object", "description": "An object."},
                },
                "required": [KEYS[0]],
            },
        },
    }
    for name in NAMES
]


class TemplateProbes:
    """What a template writes behind the message of a user.

    Attributes
    ----------
    said : str or None
        The answer whose content is `CONTENT`; None if the template does not write it.
    begun : str
        What it writes where an answer is to begin.
    """

    def __init__(self, render: Render, tools: Sequence[Mapping[str, Any]] | None = TOOLS) -> None:
        self._render, self._tools = render, tools
        said = self.answer({"content": CONTENT})
        self.said = said if said is not None and CONTENT in said else None
        self.begun = self._behind_user([], add_generation_prompt=True) or ""

    def answer(self, message: Mapping[str, Any], **variables: Any) -> str | None:
        """Return the text of an answer; None if the template refuses it."""
        given = {"role": "assistant", **message}
        return self._behind_user([given], add_generation_prompt=False, **variables)

    def begun_with(self, **variables: Any) -> str:
        """Return what the template writes where an answer is to begin, given variables."""
        return self._behind_user([], add_generation_prompt=True, **variables) or ""

    def _behind_user(self, answers: Sequence[Mapping[str, Any]], **given: Any) -> str | None:
        messages = [{"role": "user", "content": USER}, *answers]
        try:
            text = self._render(messages, tools=self._tools, **given)
        except (ValueError, TypeError):
            return None
        _, found, behind = text.rpartition(USER)
        return behind if found else None


class WrittenCalls:
    """The calls that a template writes, without what stands around answers of any kind."""

    def __init__(
        self,
        probes: TemplateProbes,
        *,
        has_text_arguments: bool = False,
        has_named_ids: bool = False,
    ) -> None:
        self._probes = probes
        self.has_text_arguments, self.has_named_ids = has_text_arguments, has_named_ids

    def calls(self, *calls: tuple[str, Mapping[str, Any]]) -> str | None:
        """Return the text of calls, each a name and arguments; None if there is none."""
        given = {"tool_calls": [self.call(*each) for each in calls]}
        for message in ({"content": "", **given}, given):
            text = self._probes.answer(message)
            if text is not None and all(name in text for name, _ in calls):
                return self._without_turn(text)
        return None

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call as messages have it."""
        given = json.dumps(arguments) if self.has_text_arguments else dict(arguments)
        number = (_NAMED_IDS if self.has_named_ids else _IDS)[NAMES.index(name)]
        return {"id": number, "type": "function", "function": {"name": name, "arguments": given}}

    def _without_turn(self, text: str) -> str:
        """Return the text of an answer without what begins and ends each."""
        before, _, after = (self._probes.said or "").partition(CONTENT)
        begins = (common_begin(text, each) for each in (before, self._probes.begun))
        text = text[max(map(len, begins)) :]
        text = text.removesuffix(common_end(text, after))
        if not self.has_named_ids:
            for each in _IDS:
                text = text.replace(each, ID_HOLE)
        return text


def pieces_between(text: str, marks: Sequence[str]) -> list[str] | None:
    """Return what stands before, between and behind marks; None if they are not in this order."""
    pieces = []
    for mark in marks:
        before, found, text = text.partition(mark)
        if not found:
            return None
        pieces.append(before)
    return [*pieces, text]


def common_begin(first: str, other: str) -> str:
    """Return what two texts begin with, up to where a mark ends."""
    pairs = zip(first, other, strict=False)
    length = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return re.sub(r"<[^<>]*$", "", first[:length])


def common_end(first: str, other: str) -> str:
    """Return what two texts end with, from where a mark begins."""
    pairs = zip(reversed(first), reversed(other), strict=False)
    length = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return re.sub(r"^[^<]*>", "", first[len(first) - length :])

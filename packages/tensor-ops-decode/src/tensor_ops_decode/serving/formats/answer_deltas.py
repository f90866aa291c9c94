"""What an answer goes on with, as it is parsed: text, reasoning, calls of tools."""

from dataclasses import dataclass, replace
from typing import TypeAlias

__all__ = ["ArgumentsDelta", "CallDelta", "ContentDelta", "Delta", "ReasoningDelta", "joined"]


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Text of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A call of a tool begins, the `index`-th of the answer from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of a call's arguments, a piece of JSON text."""

    index: int
    text: str


Delta: TypeAlias = ContentDelta | ReasoningDelta | CallDelta | ArgumentsDelta


def joined(deltas: list[Delta]) -> list[Delta]:
    """Return deltas with each joined to the one before if they are of one text.

    >>> joined([ContentDelta("a"), ContentDelta("b"), CallDelta(0, "f")])
    [ContentDelta(text='ab'), CallDelta(index=0, name='f')]
    """
    found: list[Delta] = []
    for delta in deltas:
        last = found[-1] if found else None
        if isinstance(delta, CallDelta) or isinstance(last, CallDelta) or last is None:
            found.append(delta)
        elif replace(last, text="") == replace(delta, text=""):
            found[-1] = replace(last, text=last.text + delta.text)
        else:
            found.append(delta)
    return found

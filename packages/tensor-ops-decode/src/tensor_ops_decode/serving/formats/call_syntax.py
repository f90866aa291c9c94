"""How models write calls of tools and reasoning: what stands around names, arguments and thoughts.

All texts here are what a chat template writes. Those that an answer is searched for are found
whatever white space stands in them; see `loose_text`.
"""

from dataclasses import dataclass

__all__ = [
    "CallSyntax",
    "ChannelSyntax",
    "JsonStyle",
    "NamedCall",
    "ObjectCall",
    "ParameterCall",
    "ReasoningSyntax",
]


@dataclass(frozen=True)
class JsonStyle:
    """What stands between the items of JSON, and behind its keys."""

    item: str = ", "
    key: str = ": "


@dataclass(frozen=True)
class ObjectCall:
    """A JSON object that has name and arguments: ``{"name": "f", "arguments": {"k": "v"}}``.

    Attributes
    ----------
    head, middle, tail : str
        What stands before the name, between name and arguments, and behind them.
    name_key, arguments_key : str
        The keys of both.
    """

    head: str
    middle: str
    tail: str
    name_key: str
    arguments_key: str
    style: JsonStyle


@dataclass(frozen=True)
class NamedCall:
    """A name, a mark, and arguments as a JSON object: ``f[ARGS]{"k": "v"}``."""

    middle: str
    style: JsonStyle


@dataclass(frozen=True)
class ParameterCall:
    """A name, and each argument between marks of its own.

    Attributes
    ----------
    name_end : str
        What stands behind the name, also where no argument follows.
    key_start, value_end, separator : str
        What stands before a key, behind a value, and between this and the next key.
    text_start, json_start : str
        What stands between a key and a value that is a text, and one that is not.
    quote : str
        What stands around texts, where they are told from other values by that; such values are
        as JSON or as literals of Python but for the quotes. If it is empty, a text is written as it
        is and other values as JSON.
    bare_keys : bool
        Whether the keys of objects in values have no quotes.
    """

    name_end: str
    key_start: str
    text_start: str
    json_start: str
    value_end: str
    separator: str
    quote: str = ""
    bare_keys: bool = False


@dataclass(frozen=True)
class CallSyntax:
    """How an answer has calls: ``start`` call (``between`` call)* ``end``.

    `between` is None if the template writes one call at most. A model may also write `end` and
    begin anew with `start`.
    """

    start: str
    between: str | None
    end: str
    call: ObjectCall | NamedCall | ParameterCall


@dataclass(frozen=True)
class ReasoningSyntax:
    """What stands before and behind reasoning, such as ``<think>`` and ``</think>``."""

    start: str
    end: str


@dataclass(frozen=True)
class ChannelSyntax:
    """Answers that are messages with headers, which name a channel and who they are for.

    An answer is ``<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final...``,
    and begins behind the name of its role. Calls are messages ``to=functions.NAME``.

    Attributes
    ----------
    start, channel, message, end : str
        What stands before the role, before the channel, behind the header and behind a message.
    role : str
        The role of answers.
    reasoning, calls : str
        The channels of reasoning and of calls.
    constrain : str
        What models write in a header before the type of the content.
    """

    start: str
    channel: str
    message: str
    end: str
    role: str
    reasoning: str = "analysis"
    calls: str = "commentary"
    constrain: str = "<|constrain|>"

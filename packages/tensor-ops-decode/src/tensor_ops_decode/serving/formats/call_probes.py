"""Finds how a chat template writes calls of tools, from what it writes of made up ones."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tensor_ops_decode.serving.formats.call_syntax import (
    CallSyntax,
    JsonStyle,
    NamedCall,
    ObjectCall,
    ParameterCall,
)
from tensor_ops_decode.serving.formats.loose_text import INDEX_HOLE
from tensor_ops_decode.serving.formats.template_probes import (
    INNER,
    INNER_KEY,
    KEYS,
    NAMES,
    NUMBER,
    TEXTS,
    WrittenCalls,
    common_begin,
    common_end,
    pieces_between,
)

__all__ = ["json_syntax", "parameter_syntax"]


# Calls whose arguments are JSON.


class _Found(NamedTuple):
    """Where a call is in a text, and the parts of it."""

    start: int
    end: int
    head: str
    middle: str
    tail: str
    keys: tuple[str, str] | None  # of name and arguments, if the call is an object


def json_syntax(written: WrittenCalls) -> CallSyntax | None:
    """Return how calls are written; None unless their arguments are JSON."""
    arguments = {KEYS[0]: TEXTS[0], KEYS[1]: NUMBER}
    others = {KEYS[1]: NUMBER}
    one = written.calls((NAMES[0], arguments))
    call = None if one is None else _found(one, NAMES[0], arguments)
    if one is None or call is None:
        return None
    start, end, between = one[: call.start], one[call.end :], None
    two = written.calls((NAMES[0], arguments), (NAMES[1], others))
    if two is not None:
        pair = _found(two, NAMES[0], arguments), _found(two, NAMES[1], others)
        if pair[0] and pair[1] and pair[0].end <= pair[1].start:
            merged = _merged(pair[0], pair[1])
            if merged is not None and two.startswith(start):
                call, between = merged, two[pair[0].end : pair[1].start]
                end = _longer(end, two[pair[1].end :])
    style = _style(one)
    if call.keys is None:
        return CallSyntax(start, between, end, NamedCall(call.middle, style))
    head, middle, tail = call.head, call.middle, call.tail
    return CallSyntax(start, between, end, ObjectCall(head, middle, tail, *call.keys, style))


def _found(text: str, name: str, arguments: Mapping[str, Any]) -> _Found | None:
    """Return where a call is: an object with name and arguments, or a name and arguments."""
    values = list(_values(text))
    spans = [(start, end) for start, end, value in values if value == arguments]
    if not spans:
        return None
    arguments_start, arguments_end = spans[0]
    for start, end, value in reversed(values):
        keys = [key for key, each in value.items() if each == name]
        arguments_keys = [key for key, each in value.items() if each == arguments]
        if keys and arguments_keys:
            place = text.find(name, start)
            head, tail = text[start:place], text[arguments_end:end]
            middle = text[place + len(name) : arguments_start]
            if place > arguments_start:
                head, tail = f'{{"{keys[0]}": "', "}"
                middle = f'", "{arguments_keys[0]}": '
            return _Found(start, end, head, middle, tail, (keys[0], arguments_keys[0]))
    place = text.rfind(name, 0, arguments_start)
    if place < 0:
        return None
    middle = text[place + len(name) : arguments_start]
    return _Found(place, arguments_end, "", middle, "", None) if middle.strip() else None


def _values(text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield where JSON objects are in a text, and what they are."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", text):
        try:
            value, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        yield match.start(), end, value


def _merged(first: _Found, second: _Found) -> _Found | None:
    """Return what two calls have in common; None if more than their numbers differ."""
    parts = []
    for a, b in zip(first[2:5], second[2:5], strict=True):
        pieces = re.split("([0-9]+)", a), re.split("([0-9]+)", b)
        if pieces[0][::2] != pieces[1][::2]:
            return None
        numbers = [
            x if x == y else INDEX_HOLE
            for x, y in zip(pieces[0][1::2], pieces[1][1::2], strict=True)
        ]
        parts.append("".join(map("".join, zip(pieces[0][::2], [*numbers, ""], strict=True))))
    head, middle, tail = parts
    return first._replace(head=head, middle=middle, tail=tail)


def _longer(end: str, other: str) -> str:
    return other if other.startswith(end) else end


def _style(text: str) -> JsonStyle:
    """Return how JSON is written that has a text and a number."""
    pattern = f'"{KEYS[0]}"(.*?)"{TEXTS[0]}"(.*?)"{KEYS[1]}"'
    match = re.search(pattern, text, re.DOTALL)
    if match is None or "\n" in match[0]:
        return JsonStyle()
    return JsonStyle(item=match[2], key=match[1])


# Calls whose arguments stand between marks.


def parameter_syntax(written: WrittenCalls) -> CallSyntax | None:
    """Return how calls are written whose arguments have marks of their own; None if none are."""
    nested = {KEYS[0]: TEXTS[0], KEYS[1]: NUMBER, KEYS[2]: {INNER_KEY: INNER}}
    several = written.calls((NAMES[0], nested))
    one = written.calls((NAMES[0], {KEYS[0]: TEXTS[0]}))
    if one is None or several is None:
        return None
    pieces = pieces_between(several, (NAMES[0], KEYS[0], TEXTS[0], KEYS[1], str(NUMBER), KEYS[2]))
    last = pieces_between(one, (NAMES[0], KEYS[0], TEXTS[0]))
    if pieces is None or last is None:
        return None
    start, first, text_start, behind_text, json_start, behind_json, _ = pieces
    behind_last, quote = last[-1], ""
    if text_start != json_start and text_start.startswith(json_start):
        quote = text_start[len(json_start) :].strip()
        if behind_text.removeprefix(quote) != behind_json or not behind_last.startswith(quote):
            return None
        behind_text, text_start = behind_json, json_start
        behind_last = behind_last.removeprefix(quote)
    key_start = common_end(behind_text, first).lstrip()
    value_end = "" if quote else common_begin(behind_text, behind_last)
    separator = behind_text[len(value_end) : len(behind_text) - len(key_start)]
    if not text_start or not json_start or not (quote or value_end.strip()):
        return None
    inner = several.find(INNER_KEY)
    call = ParameterCall(
        name_end=first[: len(first) - len(key_start)],
        key_start=key_start,
        text_start=text_start,
        json_start=json_start,
        value_end=value_end,
        separator=separator,
        quote=quote,
        bare_keys=inner > 0 and several[inner - 1] not in "\"'",
    )
    end = behind_last[len(value_end) :]
    between = None
    two = written.calls((NAMES[0], {KEYS[0]: TEXTS[0]}), (NAMES[1], {KEYS[0]: TEXTS[1]}))
    marks = (NAMES[0], TEXTS[0], NAMES[1], TEXTS[1])
    if two is not None and (parts := pieces_between(two, marks)) is not None:
        between = parts[2].removeprefix(quote).removeprefix(value_end)
        end = _longer(end, parts[4].removeprefix(quote).removeprefix(value_end))
    return CallSyntax(start, between, end, call)

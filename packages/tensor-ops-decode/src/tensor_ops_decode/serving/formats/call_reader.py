"""Reads one call of a tool from an answer: its name and its arguments, as they come."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tensor_ops_decode.serving.formats.answer_deltas import ArgumentsDelta, CallDelta
from tensor_ops_decode.serving.formats.call_syntax import NamedCall, ObjectCall, ParameterCall
from tensor_ops_decode.serving.formats.loose_text import MarkSearch
from tensor_ops_decode.serving.formats.text_reader import Reading, TextReader
from tensor_ops_decode.serving.formats.value_text import (
    argument_json,
    is_text_only,
    json_of_literal,
    property_schema,
)

__all__ = ["CallReader", "schemas_of"]

_IN_NAME = re.compile(r"[\w./-]")
# Models write the arguments under either key, whichever the template has.
_ARGUMENTS_KEYS = ("arguments", "parameters")
_QUOTES = ('"', "'")  # of literals as Python has them


def schemas_of(tools: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the schema of the arguments of each tool by its name.

    Tools are as OpenAI has them, ``{"type": "function", "function": {"name": ...}}``. Raises
    ValueError if one has no name, or its parameters are no schema of an object.
    """
    found = {}
    for number, tool in enumerate(tools):
        function = tool.get("function", tool)
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or not name:
            raise ValueError(f"tools[{number}] has no name, got {tool!r:.80}")
        schema = function.get("parameters") or {}
        is_mapping = isinstance(schema, Mapping)
        parts = [schema.get("properties") or {}, schema.get("required") or []] if is_mapping else []
        if not is_mapping or not (isinstance(parts[0], Mapping) and isinstance(parts[1], list)):
            raise ValueError(f"the parameters of the tool {name!r:.80} are no schema of an object")
        found[name] = dict(schema)
    return found


class CallReader:
    """Reads calls, of which those of unknown tools are none.

    A method that reads a call returns whether there is one: it has begun, however it goes on.
    """

    def __init__(self, reader: TextReader, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._reader, self._schemas = reader, schemas
        self.num_calls = 0

    def knows(self, name: str) -> bool:
        """Return whether there is a tool of a name."""
        return name in self._schemas

    def read(
        self, syntax: ObjectCall | NamedCall | ParameterCall, ends: Sequence[str]
    ) -> Reading[bool]:
        """Read a call, which one of the `ends` follows."""
        if isinstance(syntax, ObjectCall):
            return (yield from self._object(syntax))
        if isinstance(syntax, NamedCall):
            return (yield from self.named(syntax.middle))
        return (yield from self._parameters(syntax, ends))

    def named(self, middle: str) -> Reading[bool]:
        """Read a name, what stands between, and a JSON object."""
        name = yield from self._name()
        if name is None or (yield from self._reader.match(middle)) is None:
            return False
        if (yield from self._reader.skip_space()) != "{":
            return False
        yield from self.arguments(name)
        return True

    def arguments(self, name: str) -> Reading[None]:
        """Begin a call whose arguments are a JSON object, and emit this as it comes."""
        self._begin(name)
        yield from self._reader.json_value(self._emit)

    def _begin(self, name: str) -> None:
        self._reader.deltas.append(CallDelta(self.num_calls, name))
        self.num_calls += 1

    def _emit(self, text: str) -> None:
        if text:
            self._reader.deltas.append(ArgumentsDelta(self.num_calls - 1, text))

    def _name(self) -> Reading[str | None]:
        """Read the name of a tool; it is None unless it is known, and something follows it."""
        reader = self._reader
        yield from reader.skip_space()
        start = reader.place
        while _IN_NAME.match(character := (yield from reader.peek())):
            reader.place += 1
        name = reader.text[start : reader.place]
        return name if character and name in self._schemas else None

    # Objects.

    def _object(self, syntax: ObjectCall) -> Reading[bool]:
        reader = self._reader
        keys = {syntax.arguments_key, *_ARGUMENTS_KEYS} - {syntax.name_key}
        name, kept = "", ""
        has_begun = False
        if (yield from reader.match("{")) is None:
            return False
        while True:
            if (yield from reader.skip_space()) != '"':
                return has_begun
            key = yield from self._text()
            if key is None or (yield from reader.match(":")) is None:
                return has_begun
            character = yield from reader.skip_space()
            if key == syntax.name_key and not name:
                name = (yield from self._text()) or ""
                if name not in self._schemas:
                    return False
            elif key in keys and name and not has_begun:
                has_begun = True
                if character == "{":
                    yield from self.arguments(name)
                else:
                    self._begin(name)
                    self._emit(_arguments_of((yield from reader.json_value())))
            elif not (value := (yield from reader.json_value())):
                return has_begun
            elif key in keys:
                kept = value
            if (yield from reader.match(",", "}")) != 0:
                break
        if not name or reader.text[reader.place - 1] != "}":
            return has_begun
        if not has_begun:
            self._begin(name)
            self._emit(_arguments_of(kept or "{}"))
        return True

    def _text(self) -> Reading[str | None]:
        """Read a JSON text; it is None if there is none."""
        if (yield from self._reader.peek()) != '"':
            return None
        try:
            value = json.loads((yield from self._reader.json_value()))
        except ValueError:
            return None
        return value if isinstance(value, str) else None

    # Parameters.

    def _parameters(self, syntax: ParameterCall, ends: Sequence[str]) -> Reading[bool]:
        reader = self._reader
        name = yield from self._name()
        if name is None or (yield from reader.match(syntax.name_end)) is None:
            return False
        mark = syntax.key_start
        num_keys = 0
        while not (yield from self._is_next(ends)):
            if (yield from reader.match(mark)) is None:
                if reader.is_cut(mark):
                    self._begin_unless(num_keys, name)
                    reader.place = len(reader.text)
                    return True
                if num_keys == 0 and not reader.is_cut(*ends):
                    return False
                break
            self._begin_unless(num_keys, name)
            self._emit(", " if num_keys else "{")
            num_keys += 1
            mark = syntax.separator + syntax.key_start
            if not (yield from self._parameter(syntax, name, ends)):
                return True
        self._begin_unless(num_keys, name)
        self._emit("}" if num_keys else "{}")
        return True

    def _begin_unless(self, has_begun: int, name: str) -> None:
        if not has_begun:
            self._begin(name)

    def _is_next(self, marks: Sequence[str]) -> Reading[bool]:
        """Return whether one of the marks comes next, which is not read."""
        place = self._reader.place
        found = yield from self._reader.match(*marks)
        self._reader.place = place
        return found is not None

    def _parameter(self, syntax: ParameterCall, name: str, ends: Sequence[str]) -> Reading[bool]:
        """Read a key and a value; return whether the value has an end."""
        reader = self._reader
        starts = [syntax.json_start] if syntax.quote else [syntax.text_start, syntax.json_start]
        start = reader.place
        if (found := (yield from reader.until(MarkSearch(starts), None))) is None:
            return False
        number, _, begin = found
        key = reader.text[start:begin].strip()
        self._emit(f"{json.dumps(key, ensure_ascii=False)}: ")
        if syntax.quote:
            value = yield from self._literal(syntax, ends)
            self._emit(json_of_literal(value, syntax.quote, syntax.bare_keys) if value else "")
            return reader.place < len(reader.text)
        yield from reader.skip(_space_after(starts[number]))
        return (yield from self._value(syntax, property_schema(self._schemas[name], key), number))

    def _value(
        self, syntax: ParameterCall, schema: Mapping[str, Any], number: int
    ) -> Reading[bool]:
        """Read a value up to its end, without the white space that belongs to marks."""
        reader = self._reader
        is_marked = syntax.text_start != syntax.json_start
        is_text = number == 0 if is_marked else is_text_only(schema)
        search = MarkSearch([syntax.value_end])
        own = _space_before(syntax.value_end)
        start = reader.place
        if not is_text:
            found = yield from reader.until(search, None)
            value = reader.text[start : found[2] if found else len(reader.text)].removesuffix(own)
            self._emit(argument_json(value, {} if is_marked else schema) if found else value)
            return found is not None
        self._emit('"')
        found = yield from reader.until(search, lambda text: self._emit(_escaped(text)))
        if found is None:
            return False
        # The template's own white space before the mark is none of the value.
        self._emit(_escaped(reader.text[found[1] : found[2]].removesuffix(own)) + '"')
        return True

    def _literal(self, syntax: ParameterCall, ends: Sequence[str]) -> Reading[str]:
        """Read a value whose texts are in quotes, up to the separator or the end of the call."""
        reader = self._reader
        yield from reader.skip_space()
        start, depth = reader.place, 0
        marks = [each for each in (syntax.separator, *ends) if each.strip()]
        quotes = _QUOTES if syntax.quote in _QUOTES else (syntax.quote,)
        while character := (yield from reader.peek()):
            number = None
            if any(quote.startswith(character) for quote in quotes):
                number = yield from reader.match(*quotes)
            if number is not None:
                yield from self._quoted(quotes[number])
                continue
            if depth <= 0 and (yield from self._is_next(marks)):
                break
            depth += (character in "{[(") - (character in "}])")
            reader.place += 1
        return reader.text[start : reader.place].strip()

    def _quoted(self, quote: str) -> Reading[None]:
        """Read the rest of a text up to the quote behind it."""
        reader = self._reader
        search = MarkSearch([quote, "\\"] if quote in _QUOTES else [quote])
        while (found := (yield from reader.until(search, None))) is not None and found[0] == 1:
            if (yield from reader.peek()):
                reader.place += 1


def _arguments_of(text: str) -> str:
    """Return the arguments that a JSON value stands for: a text may have the object."""
    try:
        value = json.loads(text)
        if isinstance(value, str):
            text, value = value, json.loads(value)
    except (ValueError, RecursionError):
        return text
    return text if value is not None else "{}"


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _space_after(mark: str) -> str:
    return mark[len(mark.rstrip()) :]


def _space_before(mark: str) -> str:
    return mark[: len(mark) - len(mark.lstrip())]

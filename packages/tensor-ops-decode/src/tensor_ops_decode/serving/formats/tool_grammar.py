"""Grammars for answers that call tools, in the variant of Lark that llguidance reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from tensor_ops_decode.serving.formats.call_reader import schemas_of
from tensor_ops_decode.serving.formats.call_syntax import (
    CallSyntax,
    ChannelSyntax,
    JsonStyle,
    NamedCall,
    ObjectCall,
    ParameterCall,
    ReasoningSyntax,
)
from tensor_ops_decode.serving.formats.loose_text import ID_HOLE, INDEX_HOLE
from tensor_ops_decode.serving.formats.value_text import (
    MAX_DEPTH,
    allowed_texts,
    allows_text,
    property_schema,
    referenced,
)

if TYPE_CHECKING:
    from tensor_ops_decode.text import Tokenizer

__all__ = ["SchemaGrammar", "ToolGrammar", "marks_of"]

_HOLES = {ID_HOLE: "/[a-zA-Z0-9]{9}/", INDEX_HOLE: "/[0-9]{1,3}/"}
_ANY_TEXT = "(?s:.*)"
# Values as a literal has them whose objects have keys without quotes.
_LITERALS = """\
literal: literal_text | literal_list | literal_object | LITERAL_WORD
LITERAL_WORD: /-?(0|[1-9][0-9]*)([.][0-9]+)?|true|false|null/
literal_list: "[" (literal ("," literal)*)? "]"
literal_object: "{" (literal_pair ("," literal_pair)*)? "}"
literal_pair: /[A-Za-z_][A-Za-z0-9_]*/ ":" literal
"""


def marks_of(*syntaxes: CallSyntax | ReasoningSyntax | ChannelSyntax | None) -> list[str]:
    """Return all marks that answers are searched for."""
    return [mark for syntax in syntaxes for mark in _texts_in(syntax)]


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_dataclass(value) and not isinstance(value, JsonStyle):
        for field in fields(value):
            yield from _texts_in(getattr(value, field.name))


class _Grammar:
    """Rules that stand for marks, texts and JSON; without a tokenizer, all marks are text."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._rules: list[str] = []
        self._num_rules = 0

    def _thoughts(self, reasoning: ReasoningSyntax, *, is_in_reasoning: bool) -> str:
        """Return what stands for reasoning, which need not be there unless it has begun."""
        thoughts = self._until(reasoning.end) + " (/[ \\n]{1,4}/)?"
        return thoughts if is_in_reasoning else f"({self._mark(reasoning.start)} {thoughts})?"

    def _lines(self, start: str) -> str:
        return "\n".join([f"start: {start}", *self._rules, ""])

    def _rule(self, body: str, options: str = "") -> str:
        """Add a rule; return its name."""
        self._num_rules += 1
        name = f"rule_{self._num_rules}"
        self._rules.append(f"{name}{options}: {body}")
        return name

    def _any(self, choices: Iterator[str]) -> str:
        return self._rule(" | ".join(choices))

    def _mark(self, mark: str) -> str:
        """Return what stands for a mark: texts, special tokens, and holes."""
        parts, known = [], 0
        for start, end in self._special(mark):
            parts += [_quoted(mark[known:start]), self._token(mark[start:end])]
            known = end
        parts.append(_quoted(mark[known:]))
        return " ".join(filter(None, parts)) or '""'

    def _special(self, mark: str) -> list[tuple[int, int]]:
        return [] if self._tokenizer is None else self._tokenizer.special_names.places(mark)

    def _token(self, name: str) -> str:
        """Return what stands for a special token; an end token stands behind what is described."""
        if self._tokenizer is None:
            return _quoted(name)
        tokens = self._tokenizer.encode(name, add_special_tokens=False, parse_special_tokens=True)
        special = [token for token in tokens if self._tokenizer.is_special(token)]
        return " ".join(f"<[{token}]>" for token in special if token not in self._ends)

    @property
    def _ends(self) -> frozenset[int]:
        return frozenset() if self._tokenizer is None else self._tokenizer.end_tokens

    def _until(self, mark: str, text: str = _ANY_TEXT) -> str:
        """Return what stands for a text, any by default, up to a mark, and the mark."""
        inner = mark.strip()
        places = self._special(inner)
        if not places:
            # A text has no mark in it, also without the white space that the template writes.
            before = mark[: len(mark) - len(mark.lstrip())].replace("\n", "\\n")
            body = f"/{text}({before})?/" if before and text != _ANY_TEXT else f"/{text}/"
            rule = self._rule(body, f"[suffix={_quoted(inner)}]")
            return f"{rule} {_quoted(mark[len(mark.rstrip()) :])}"
        if places[0][0] == 0:
            return f"/{text}/ {self._mark(mark.lstrip())}"
        return f"/[^{re.escape(inner[0])}]*/ {self._mark(mark.lstrip())}"

    def _json(self, schema: Mapping[str, Any], style: JsonStyle) -> str:
        options = {
            "whitespace_flexible": False,
            "item_separator": style.item,
            "key_separator": style.key,
        }
        described = {"x-guidance": options, **schema}
        return self._rule(f"%json {json.dumps(described, ensure_ascii=False)}")


class SchemaGrammar(_Grammar):
    """Writes the grammar for JSON behind reasoning that has begun."""

    def text(self, reasoning: ReasoningSyntax, schema: Mapping[str, Any]) -> str:
        """Return the grammar."""
        thoughts = self._thoughts(reasoning, is_in_reasoning=True)
        return self._lines(f"{thoughts} {self._json(schema, JsonStyle())}")


class ToolGrammar(_Grammar):
    """Writes the grammar for calls of tools, or of the one that has a name.

    Raises ValueError if no tool has the name, or there is none.
    """

    def __init__(
        self,
        syntax: CallSyntax | ChannelSyntax,
        tools: Sequence[Mapping[str, Any]],
        name: str | None,
        tokenizer: Tokenizer | None,
    ) -> None:
        super().__init__(tokenizer)
        self._syntax = syntax
        schemas = schemas_of(tools)
        if not schemas:
            raise ValueError("a call needs a tool, got none")
        if name is not None and name not in schemas:
            raise ValueError(f"no tool has the name {name!r:.80}")
        self._schemas = schemas if name is None else {name: schemas[name]}
        self._has_literals = False
        self._references: dict[str, str] = {}  # the rules of what a schema refers to

    def text(
        self,
        reasoning: ReasoningSyntax | ChannelSyntax | None,
        *,
        parallel: bool,
        is_in_reasoning: bool,
    ) -> str:
        """Return the grammar, as `AnswerFormat.grammar` says."""
        thoughts = ""
        if isinstance(reasoning, ReasoningSyntax):
            thoughts = self._thoughts(reasoning, is_in_reasoning=is_in_reasoning)
        syntax = self._syntax
        if isinstance(syntax, ChannelSyntax):
            return self._lines(self._channels(syntax))
        call = self._any(self._call(syntax.call, name) for name in self._schemas)
        more = ""
        if parallel and syntax.between is not None:
            more = f"({self._mark(syntax.between)} {call})*"
        calls = f"{self._mark(syntax.start)} {call} {more} {self._mark(syntax.end)}"
        return self._lines(f"{thoughts} {calls}")

    # Calls.

    def _call(self, call: ObjectCall | NamedCall | ParameterCall, name: str) -> str:
        if isinstance(call, ParameterCall):
            return f"{_quoted(name)} {self._mark(call.name_end)} {self._parameters(call, name)}"
        arguments = self._json(_object_schema(self._schemas[name]), call.style)
        if isinstance(call, NamedCall):
            return f"{_quoted(name)} {self._mark(call.middle)} {arguments}"
        escaped = json.dumps(name, ensure_ascii=False)[1:-1]
        head, tail = f"{self._mark(call.head)} {_quoted(escaped)}", self._mark(call.tail)
        return f"{head} {self._mark(call.middle)} {arguments} {tail}"

    def _channels(self, syntax: ChannelSyntax) -> str:
        next_role = self._mark(syntax.start + syntax.role)
        channel, message = self._mark(syntax.channel), self._mark(syntax.message)
        thoughts = (
            f"({channel} {_quoted(syntax.reasoning)} {message} {self._until(syntax.end)} "
            f"{next_role})?"
        )
        kind = " json"
        if self._tokenizer is None or self._special(syntax.constrain):
            kind = f" {syntax.constrain}json"
        call = self._any(
            f"{_quoted(f'{syntax.calls} to=functions.{name}')} {self._mark(kind)} {message} "
            f"{self._json(_object_schema(schema), JsonStyle())}"
            for name, schema in self._schemas.items()
        )
        return f"{thoughts} {channel} {call}"

    # Parameters.

    def _parameters(self, call: ParameterCall, name: str) -> str:
        """Return what stands for all parameters, in the order of the schema."""
        schema = _object_schema(self._schemas[name])
        required = [each for each in schema.get("required") or () if isinstance(each, str)]
        keys = list(dict.fromkeys([*(schema.get("properties") or {}), *required]))
        values = {key: self._parameter(call, key, property_schema(schema, key)) for key in keys}
        return self._series(values, required, call.key_start, call.separator + call.key_start)

    def _series(
        self, values: Mapping[str, str], required: Sequence[str], before: str, between: str
    ) -> str:
        """Return what stands for named values in their order, of which some may be left out."""
        first = following = '""'
        for name in reversed(list(values)):
            left_out = (first, following)
            first, following = (
                f"{self._mark(mark)} {values[name]} {following}" for mark in (before, between)
            )
            if name not in required:
                first = f"{first} | {left_out[0]}"
                following = f"{following} | {left_out[1]}"
            first, following = self._rule(first), self._rule(following)
        return first

    def _parameter(self, call: ParameterCall, key: str, schema: dict[str, Any]) -> str:
        """Return what stands for a key and its value, with what ends the value."""
        if call.quote:
            value = self._literal(call, schema)
            return self._rule(f"{_quoted(key)} {self._mark(call.json_start)} {value}")
        texts = allowed_texts(schema)
        end = self._mark(call.value_end)
        text_start, json_start = self._mark(call.text_start), self._mark(call.json_start)
        if texts:
            values = " | ".join(map(_quoted, texts))
            return self._rule(f"{_quoted(key)} {text_start} ({values}) {end}")
        if allows_text(schema):
            until = self._until(call.value_end, _text_pattern(schema))
            return self._rule(f"{_quoted(key)} {text_start} {until}")
        value = self._json(schema, JsonStyle())
        return self._rule(f"{_quoted(key)} {json_start} {value} {end}")

    # Values whose texts are in quotes.

    def _literal(self, call: ParameterCall, schema: Mapping[str, Any]) -> str:
        if not call.bare_keys:
            return self._json(schema, JsonStyle())
        if not self._has_literals:
            self._has_literals = True
            text = f"{self._mark(call.quote)} {self._until(call.quote)}"
            self._rules += [f"literal_text: {text}", _LITERALS]
        self._references = {}
        return self._bare(call, schema, schema)

    def _bare(
        self, call: ParameterCall, schema: Any, root: Mapping[str, Any], depth: int = 0
    ) -> str:
        """Return what stands for a value, in which the keys of objects have no quotes."""
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return "literal"
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference not in self._references:
                self._num_rules += 1
                name = self._references[reference] = f"reference_{self._num_rules}"
                body = self._bare(call, referenced(schema, root), root, depth + 1)
                self._rules.append(f"{name}: {'literal' if body == name else body}")
            return self._references[reference]
        quote, texts = self._mark(call.quote), allowed_texts(schema)
        if texts:
            return f"{quote} ({' | '.join(map(_quoted, texts))}) {quote}"
        kind = schema.get("type")
        choices = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(kind, list):
            choices = [{**schema, "type": each} for each in kind]
        if isinstance(choices, list):
            return self._any(self._bare(call, each, root, depth + 1) for each in choices)
        if kind == "string":
            return f"{quote} {self._until(call.quote, _text_pattern(schema))}"
        if kind == "array":
            item = self._bare(call, schema.get("items"), root, depth + 1)
            return self._rule(f'"[" ({item} ("," {item})*)? "]"')
        if kind == "object" and isinstance(schema.get("properties"), Mapping):
            values = {
                key: f"{_quoted(key)} {self._mark(call.json_start)} "
                + self._bare(call, each, root, depth + 1)
                for key, each in schema["properties"].items()
            }
            required = schema.get("required")
            required = required if isinstance(required, list) else []
            return self._rule(f'"{{" {self._series(values, required, "", ",")} "}}"')
        if kind in ("integer", "number", "boolean", "null") or "enum" in schema:
            return self._json(schema, JsonStyle())
        return "literal_object" if kind == "object" else "literal"


def _text_pattern(schema: Mapping[str, Any]) -> str:
    """Return the regular expression of the texts that a schema allows, as to their length."""
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if not isinstance(least, int) or not isinstance(most, (int, type(None))):
        return _ANY_TEXT
    if schema.get("type") != "string" or (least, most) == (0, None):
        return _ANY_TEXT
    return f"(?s:.{{{least},{'' if most is None else most}}})"


def _object_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of arguments, which are an object; an empty one if none are declared."""
    if not schema:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    return {"type": "object", **schema}


def _quoted(text: str) -> str:
    """Return a text as a literal, with the holes in it; nothing if it is empty."""
    parts = re.split(f"([{ID_HOLE}{INDEX_HOLE}])", text)
    return " ".join(
        _HOLES.get(part) or json.dumps(part, ensure_ascii=False) for part in parts if part
    )

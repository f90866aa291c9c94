"""The values of arguments as JSON text, where models write them in another way."""

import ast
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = [
    "MAX_DEPTH",
    "allowed_texts",
    "allows_text",
    "argument_json",
    "is_text_only",
    "json_of_literal",
    "property_schema",
    "referenced",
]

MAX_DEPTH = 64  # of schemas within schemas; what is deeper counts as not known
_KINDS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}
_WORDS = {"True": "true", "False": "false", "None": "null"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_WORD = re.compile(r"[^\W\d][\w$-]*")


def property_schema(schema: Any, key: str) -> dict[str, Any]:
    """Return the schema of a property, with the definitions that it may refer to."""
    if not isinstance(schema, Mapping):
        return {}
    properties = schema.get("properties")
    found = properties.get(key) if isinstance(properties, Mapping) else None
    if not isinstance(found, Mapping):
        found = schema.get("additionalProperties")
    if not isinstance(found, Mapping):
        return {}
    definitions = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    return {**definitions, **found}


def is_text_only(schema: Mapping[str, Any]) -> bool:
    """Return whether all values that a schema allows are texts."""
    return _kinds(schema, schema) == {"string"}


def allows_text(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema allows texts."""
    kinds = _kinds(schema, schema)
    return kinds is None or "string" in kinds


def allowed_texts(schema: Mapping[str, Any]) -> list[str]:
    """Return the values that a schema allows, if it lists them and they are texts."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        return []
    return values


def argument_json(text: str, schema: Mapping[str, Any]) -> str:
    """Return as JSON a value that a model has written as text if it is one, as JSON otherwise.

    >>> argument_json("12", {"type": "string"}), argument_json("12", {"type": "integer"})
    ('"12"', '12')
    """
    kinds = _kinds(schema, schema)
    if kinds == {"string"}:
        return _dumped(text)
    try:
        value = _loaded(text)
    except (ValueError, RecursionError):
        # Some templates write objects as Python does, and so do models after them.
        return _json_of_python(text) if text.strip()[:1] in ("{", "[") else _dumped(text)
    if kinds is not None and "string" in kinds and not kinds & _kinds_of(value):
        return _dumped(text)
    return _json_text(text)


def json_of_literal(text: str, quote: str, bare_keys: bool) -> str:
    """Return as JSON a literal whose texts stand within quotes, or a JSON text of what it is.

    >>> json_of_literal("[<q>a\\"b<q>, {c: True}]", "<q>", True)
    '["a\\\\"b", {"c": true}]'
    """
    if quote in ('"', "'"):
        return _json_of_python(text)
    parts = text.split(quote)
    outside = [_WORD.sub(_worded(bare_keys), part) for part in parts[::2]]
    inside = [_dumped(part) for part in parts[1::2]]
    found = "".join(a + b for a, b in zip(outside, [*inside, ""], strict=False))
    try:
        _loaded(found)
    except (ValueError, RecursionError):
        return _dumped(text)
    return _json_text(found)


def _json_of_python(text: str) -> str:
    try:
        _loaded(text)
        return _json_text(text)
    except (ValueError, RecursionError):
        pass
    try:
        value = ast.literal_eval(_ESCAPE.sub(_escaped, text.strip()))
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return _dumped(text)


def _escaped(match: re.Match[str]) -> str:
    """Return an escape of Python's, or a backslash that stands for itself."""
    return match[0] if match[1] in "\n\\'\"abfnrtvxuUN01234567" else f"\\{match[0]}"


def _worded(bare_keys: bool) -> Callable[[re.Match[str]], str]:
    def replaced(match: re.Match[str]) -> str:
        word, after = match[0], match.string[match.end() :].lstrip()
        if bare_keys and after.startswith(":"):
            return _dumped(word)
        return _WORDS.get(word, word)

    return replaced


def _loaded(text: str) -> Any:
    """Return the value of a JSON text, or of one of Python's words."""
    return json.loads(_json_text(text), parse_constant=_refuse)


def _json_text(text: str) -> str:
    """Return a JSON text as it is, but for the space around it and for one of Python's words."""
    return _WORDS.get(text.strip(), text.strip())


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _dumped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def referenced(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """Return what a schema refers to within another; None if it refers to nothing there."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference.split("/")[1:]:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _kinds(schema: Any, root: Mapping[str, Any]) -> set[str] | None:
    """Return the JSON types that a schema allows; None if it allows any, or that is not known."""
    return _Kinds(root).of(schema)


class _Kinds:
    """Finds the types that schemas allow; each that is referred to is looked at once."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[str, set[str] | None] = {}

    def of(self, schema: Any, depth: int = 0) -> set[str] | None:
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return None
        if "type" in schema:
            given = schema["type"]
            kinds = {each for each in _listed(given) if isinstance(each, str)}
            return kinds | ({"null"} if schema.get("nullable") is True else set())
        if "const" in schema:
            return _kinds_of(schema["const"])
        if isinstance(schema.get("enum"), list):
            return set().union(*map(_kinds_of, schema["enum"]))
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference not in self._known:
                self._known[reference] = set()
                self._known[reference] = self.of(referenced(schema, self._root), depth + 1)
            return self._known[reference]
        for name in ("anyOf", "oneOf"):
            if isinstance(schema.get(name), list):
                return self._any(schema[name], depth)
        choices = schema.get("allOf")
        if isinstance(choices, list) and len(choices) == 1:
            return self.of(choices[0], depth + 1)
        return None

    def _any(self, choices: list[Any], depth: int) -> set[str] | None:
        found: set[str] = set()
        for choice in choices:
            kinds = self.of(choice, depth + 1)
            if kinds is None:
                return None
            found |= kinds
        return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _kinds_of(value: object) -> set[str]:
    kind = _KINDS.get(type(value), "string")
    if kind == "integer" or (isinstance(value, float) and value.is_integer()):
        return {"integer", "number"}
    return {kind}

"""Schemas, regular expressions and grammars for answers, and those that are refused."""

import json
from pathlib import Path

import jsonschema

FOLDER = Path(__file__).parent

# Of the kinds in JSONSchemaBench. The answers of some have fewer bytes than the model takes.
SCHEMAS, UNBOUNDED = (
    [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for path in (FOLDER / "bounded_schemas.jsonl", FOLDER / "unbounded_schemas.jsonl")
)
REGEXES = [
    *("a", "ab|abc", "[ab]{2,4}", r"\d{3}", r"[0-9]{1,3}(\.[0-9]{1,2})?", "(yes|no)!", "é|日本|🙂"),
    *("[^a]", r"\w{4}", "(?:ab){0,3}c", "x?y?z?!", r"[\x00-\x1f]{2}", r"\(\d\)", "[д-я]{2}", " a"),
    *("(?i:yes)", r"\n{1,2}-", "[🙂-🙏]"),
]
GRAMMARS = [
    ('start: "yes" | "no"', "yes|no"),
    ('start: item ("," item){0,2}\nitem: /[a-c]/', "[a-c](,[a-c]){0,2}"),
    ('start: "(" start ")" | "x"', r"\(*x\)*"),
    ("start: NUMBER\nNUMBER: /[1-9][0-9]{0,2}/", "[1-9][0-9]{0,2}"),
]
REFUSED = [
    ({"json_schema": {"type": "text"}}, r"json_schema is refused by llguidance: .*text"),
    ({"json_schema": {"not": {"type": "string"}}}, "not"),
    ({"json_schema": {"$ref": "#/none"}}, "/none"),
    ({"json_schema": {"$ref": "https://example.org/a"}}, "https://example.org/a"),
    ({"json_schema": {"type": "string", "pattern": "("}}, "unclosed group"),
    ({"json_schema": {"type": "string", "format": "colour"}}, "colour"),
    ({"json_schema": {"type": "integer", "minimum": 3, "maximum": 2}}, "json_schema is refused"),
    ({"json_schema": False}, "must be a mapping"),
    ({"json_schema": {"const": "\ud800"}}, "json_schema is refused"),
    ({"json_schema": "{"}, "json_schema is no JSON"),
    ({"json_schema": "[]"}, r"must be a mapping, or one as JSON, got \[\]"),
    ({"json_schema": 3}, "must be a mapping"),
    ({"json_schema": {"const": object()}}, "JSON values only"),
    ({"json_schema": {"const": float("nan")}}, "JSON values only"),
    ({"regex": "["}, r"(?s)regex is refused by llguidance: .*unclosed character class"),
    ({"regex": r"(a)\1"}, "backreferences are not supported"),
    ({"regex": 3}, "regex must be a string, got 3"),
    ({"regex": "\ud800"}, "regex has a lone surrogate"),
    ({"grammar": 'start: "a" b'}, r"grammar is refused by llguidance: .*\"b\""),
    ({"grammar": 'begin: "a"'}, "start"),
    ({"grammar": b'start: "a"'}, "grammar must be a string"),
    ({"regex": "", "ignore_eos": True}, "empty answer alone"),
    ({"regex": "a", "grammar": 'start: "a"'}, "one constraint, got regex and grammar"),
    ({"json_schema": {}, "regex": "a"}, "one constraint, got json_schema and regex"),
]


def is_valid(value, schema):
    """Return whether a value is valid by a schema, its formats included."""
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    return kind(schema, format_checker=kind.FORMAT_CHECKER).is_valid(value)

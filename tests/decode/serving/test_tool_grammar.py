"""Grammars for calls: whatever they allow is read as calls whose arguments the schemas allow."""

import json

import jsonschema
import pytest

from byte_models import END
from tensor_ops_decode.generation.constraints import Constraints
from tensor_ops_decode.serving.formats.answer_format import AnswerFormat
from tensor_ops_decode.serving.formats.call_syntax import CallSyntax, JsonStyle, NamedCall
from tensor_ops_decode.serving.formats.find_format import answer_format
from tool_templates import LONE, TEMPLATES, TOOLS, parsed, template, tokenizer, walk

SPECIAL = [
    *("[TOOL_CALLS]", "[ARGS]", "<|calls_begin|>", "<|calls_end|>", "<|call_begin|>", "<|sep|>"),
    *("<|call_end|>", "<|args|>", "<|tool_call_start|>", "<|tool_call_end|>", "<|tool_call>"),
    *("<tool_call|>", '<|"|>', "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<think>"),
    *("<|constrain|>", "</think>"),
]
ENDS = ['"', "\n</parameter>", "</arg_value>", "</parameter>", "}", "]", '<|"|>', "<|end|>"]
SCHEMAS = {
    tool["function"]["name"]: tool["function"].get("parameters", {"maxProperties": 0})
    for tool in TOOLS
}


@pytest.fixture(scope="module")
def tokenizers():
    return [tokenizer(), tokenizer(SPECIAL)]


def answers(grammar, tokens, count):
    """Return texts that a grammar allows, with the tokens of a tokenizer."""
    made = Constraints(tokens, tokens.vocab_size, frozenset([END]))
    constraint = made.compiled({"grammar": grammar}, False)
    given = {"add_special_tokens": False, "parse_special_tokens": True}
    words = [tokens.encode(word, **given) for word in ("</think>", *ENDS)]
    for chance in range(count):
        found = walk(constraint.copy(), words, chance)
        yield tokens.decode(found, skip_special_tokens=False)


@pytest.mark.parametrize("name", TEMPLATES)
def test_answers_of_a_grammar_are_calls_with_valid_arguments(name, tokenizers):
    found = answer_format(template(name).render)
    for tokens in tokenizers:
        grammar = found.grammar(TOOLS, parallel=False, tokenizer=tokens)
        for text in answers(grammar, tokens, 6):
            content, _, calls = parsed(found.parser(TOOLS), text)
            assert content == ""
            [(called, arguments)] = calls
            jsonschema.validate(json.loads(arguments), SCHEMAS[called])


@pytest.mark.parametrize("name", TEMPLATES)
def test_several_calls_and_one_named_tool(name, tokenizers):
    found = answer_format(template(name).render)
    grammar = found.grammar(TOOLS, name="now", tokenizer=tokenizers[1])
    counts = set()
    for text in answers(grammar, tokenizers[1], 8):
        _, _, calls = parsed(found.parser(TOOLS), text)
        assert {*calls} == {("now", "{}")}
        counts.add(len(calls))
    assert (max(counts) > 1) == (name not in LONE)


def test_reasoning_comes_first_where_the_prompt_has_begun_it(tokenizers):
    found = answer_format(template("hermes").render)
    assert found.begins_in_reasoning("<think>\n")
    for tokens in tokenizers:
        for prompt in ("<think>\n", ""):
            given = {"prompt": prompt, "tokenizer": tokens, "parallel": False}
            grammar = found.grammar(TOOLS, name="now", **given)
            texts = [*answers(grammar, tokens, 8)]
            read = [parsed(found.parser(TOOLS, prompt), text) for text in texts]
            assert all(each[2] == [("now", "{}")] for each in read)
            assert any(each[1] for each in read)
            assert all("</think>" in text for text in texts) == (prompt != "")


def test_no_reasoning_comes_behind_a_prompt_that_has_ended_it(tokenizers):
    found = answer_format(template("hermes").render)
    prompt = "<think>\n\n</think>\n\n"
    grammar = found.grammar(TOOLS, name="now", prompt=prompt, parallel=False)
    expected = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert {*answers(grammar, tokenizers[0], 4)} == {expected}


def test_schemas_with_definitions_and_tools_without_any(tokenizers):
    point = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    tree = {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/tree"}}]}
    parameters = {
        "type": "object",
        "$defs": {"point": {**point, "additionalProperties": False}, "tree": tree},
        "properties": {
            "at": {"$ref": "#/$defs/point"},
            "near": {"type": "array", "items": {"$ref": "#/$defs/point"}},
            "tag": {"type": ["string", "null"]},
            "tree": {"$ref": "#/$defs/tree"},
        },
        "required": ["at"],
        "additionalProperties": False,
    }
    tools = [{"type": "function", "function": {"name": "go", "parameters": parameters}}]
    for name in ("hermes", "xml", "bare", "typed", "python"):
        found = answer_format(template(name).render)
        grammar = found.grammar(tools, parallel=False, tokenizer=tokenizers[1])
        for text in answers(grammar, tokenizers[1], 4):
            _, _, [(_, arguments)] = parsed(found.parser(tools), text)
            jsonschema.validate(json.loads(arguments), parameters)


def test_an_end_token_in_a_mark_ends_the_answer_instead(tokenizers):
    call = NamedCall(" ", JsonStyle())
    found = AnswerFormat(CallSyntax("<c>", None, "</c><|im_end|>", call))
    grammar = found.grammar(TOOLS, name="now", tokenizer=tokenizers[1])
    assert {*answers(grammar, tokenizers[1], 4)} == {"<c>now {}</c>"}
    assert parsed(found.parser(TOOLS), "<c>now {}</c>") == ("", "", [("now", "{}")])
    assert found.visible_tokens(tokenizers[1]) == frozenset()


def test_what_is_refused():
    found = AnswerFormat(CallSyntax("<c>", None, "</c>", NamedCall(" ", JsonStyle())))
    with pytest.raises(ValueError, match="no tool has the name 'other'"):
        found.grammar(TOOLS, name="other")
    with pytest.raises(ValueError, match="needs a tool, got none"):
        found.grammar([])
    for function, words in (
        ({}, r"tools\[0\] has no name"),
        ({"name": "f", "parameters": [1]}, "parameters of the tool 'f'"),
        ({"name": "f", "parameters": {"properties": 3}}, "no schema of an object"),
        ({"name": "f", "parameters": {"required": "a"}}, "no schema of an object"),
    ):
        with pytest.raises(ValueError, match=words):
            found.grammar([{"type": "function", "function": function}])
        with pytest.raises(ValueError, match=words):
            found.parser([{"type": "function", "function": function}])


def test_marks_that_are_special_tokens_are_visible():
    tokens = tokenizer([*SPECIAL, "<|call|>"])
    for name, expected in {
        "hermes": {"<think>", "</think>"},
        "list": {"[TOOL_CALLS]"},
        "channels": {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"},
    }.items():
        visible = answer_format(template(name).render).visible_tokens(tokens)
        assert {tokens.token(each) for each in visible} == expected
    assert AnswerFormat().visible_tokens(tokens) == frozenset()


def test_json_comes_behind_reasoning_that_the_prompt_has_begun(tokenizers):
    found = answer_format(template("hermes").render)
    schema = {"type": "object", "properties": {"a": {"enum": [1, None]}}, "required": ["a"]}
    schema["additionalProperties"] = False
    for tokens in tokenizers:
        assert found.schema_grammar(schema, "", tokens) is None
        grammar = found.schema_grammar(schema, "<think>\n", tokens)
        for text in answers(grammar, tokens, 8):
            content, _, calls = parsed(found.parser(prompt="<think>\n"), text)
            assert not calls
            jsonschema.validate(json.loads(content), schema)

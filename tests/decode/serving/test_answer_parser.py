"""Answers cut in any way, and answers that are not what they should be."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_ops_decode.serving.formats.answer_deltas import (
    ArgumentsDelta,
    CallDelta,
    ContentDelta,
    ReasoningDelta,
    joined,
)
from tensor_ops_decode.serving.formats.answer_format import AnswerFormat
from tensor_ops_decode.serving.formats.call_syntax import ReasoningSyntax
from tensor_ops_decode.serving.formats.find_format import answer_format
from tool_templates import CALLS, LONE, TEMPLATES, TOOLS, parsed, parts, template, written

FORMATS = {name: answer_format(template(name).render) for name in TEMPLATES}
FORMATS["text"] = AnswerFormat()
FORMATS["thoughts"] = AnswerFormat(None, ReasoningSyntax("<think>", "</think>"))
# Pieces of answers, right and wrong, of which texts are made by chance.
FRAGMENTS = [
    *("<think>", "\n</think>\n\n", "<tool_call>\n", "\n</tool_call>", '{"name": "', "get_weather"),
    *('", "arguments": ', '", "parameters": ', '{"city": "Oslo"}', "{}", "}", "now", "[", "]"),
    *("[TOOL_CALLS]", "[ARGS]", ', "id": "abcdefghi"}', ", ", ";", "<|calls_begin|>", "\n```"),
    *("<|call_begin|>", "<|call_end|>", "<|calls_end|>", "function<|sep|>", "\n```json\n"),
    *("functions.", ":0<|args|>", "<function=", ">\n", "<parameter=", "city", "days", "7"),
    *("\n</parameter>\n", "</function>", "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>"),
    *('<invoke name="', '">', '<parameter name="', '" string="true">', '" string="false">'),
    *("</parameter>", "</invoke>", "<calls>\n", "\n</calls>", "<|tool_call_start|>[", "(", "="),
    *('"Oslo"', ")", "]<|tool_call_end|>", "<|tool_call>call:", '<|"|>', ":", "{", "<tool_call|>"),
    *("<|start|>assistant", "<|channel|>analysis", "<|message|>", "<|end|>", "<|channel|>final"),
    *("<|channel|>commentary to=functions.now ", " ", "\n", "\\", '"', "é", "true", "null", "'"),
]
WRITTEN = {
    name: written(template(name), FORMATS[name], CALLS[:1] if name in LONE else CALLS)[1]
    for name in TEMPLATES
}


@st.composite
def answers(draw, name):
    """Draw an answer of pieces, in the middle of what the template writes of calls."""
    answer = WRITTEN.get(name, "")
    place = st.integers(0, len(answer))
    begin, end = sorted((draw(place), draw(place)))
    pieces = draw(st.lists(st.sampled_from(FRAGMENTS), max_size=6))
    if draw(st.booleans()):
        return "".join(pieces)
    return "".join([answer[:begin], *pieces, answer[end:]])


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), opened=st.booleans())
def test_pieces_of_any_length_give_the_same(name, data, opened):
    text = data.draw(answers(name))
    prompt = "<think>\n" if opened else ""
    whole = FORMATS[name].parser(TOOLS, prompt)
    expected = joined(whole.push(text) + whole.finish())
    cut = data.draw(st.integers(0, len(text)))
    for ends in ([0, cut, len(text)], range(len(text) + 1)):
        parser = FORMATS[name].parser(TOOLS, prompt)
        found = []
        for start, end in itertools.pairwise(ends):
            found += parser.push(text[start:end])
        assert joined(found + parser.finish()) == expected
    assert all(each.name in ("get_weather", "now") for each in expected if is_call(each))
    if not opened and not {"<", "[", "{"} & set(text):
        assert expected == ([ContentDelta(text)] if text else [])


def is_call(delta):
    return isinstance(delta, CallDelta)


def test_text_is_returned_as_soon_as_it_is_no_mark():
    parser = FORMATS["hermes"].parser(TOOLS, "<think>\n")
    assert parser.push("Let me") == [ReasoningDelta("Let me")]
    assert parser.push(" see.\n</thi") == [ReasoningDelta(" see.")]
    assert parser.push("nk>\n\nIt") == [ContentDelta("It")]
    assert parser.push(" is ") == [ContentDelta(" is")]
    assert parser.push("a <tool") == [ContentDelta(" a")]
    assert parser.push("s>") == [ContentDelta(" <tools>")]
    assert parser.push('\n<tool_call>\n{"name": "now') == []
    assert parser.push('", "arguments":') == []
    assert parser.push(' {"a') == [CallDelta(0, "now"), ArgumentsDelta(0, '{"a')]
    assert parser.push('": 1}}') == [ArgumentsDelta(0, '": 1}')]
    assert parser.push("\n</tool_call>") == []
    assert parser.finish() == []


def test_texts_of_parameters_come_in_pieces():
    parser = FORMATS["xml"].parser(TOOLS)
    begin = "<tool_call>\n<function=get_weather>\n<parameter=city>\n"
    assert parser.push(begin)[-1] == ArgumentsDelta(0, '"')
    assert parser.push('Os"') == [ArgumentsDelta(0, 'Os\\"')]
    assert parser.push("lo\n") == [ArgumentsDelta(0, "lo")]
    assert parser.push("\n</parameter>") == [ArgumentsDelta(0, '\\n"')]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        # White space, keys and order that differ from those of the template.
        ("hermes", '<tool_call>{"name":"now","arguments":{}}</tool_call>', "now{}"),
        ("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "now"}</tool_call>', 'now{"a": 1}'),
        ("hermes", '<tool_call>{"name": "now", "parameters": {}}</tool_call>', "now{}"),
        ("hermes", '<tool_call>{"name": "now"}</tool_call>', "now{}"),
        ("hermes", '<tool_call>{"name": "now", "arguments": null}</tool_call>', "now{}"),
        ("hermes", '<tool_call>{"name": "now", "arguments": "{\\"a\\": 1}"}', 'now{"a": 1}'),
        ("hermes", 'A\n<tool_call>{"name": "now", "arguments": {}}</tool_call>\nB', "ABnow{}"),
        ("list", '[TOOL_CALLS] [{"name": "now", "arguments": {}}, {"name": "now"}]', "now{}now{}"),
        ("llama", '\n{"name": "now", "parameters": {}}; {"name": "now"}', "now{}now{}"),
        ("llama", '{"answer": 1}', '{"answer": 1}'),
        ("llama", 'So: {"name": "now", "parameters": {}}', 'So: {"name": "now", "parameters": {}}'),
        ("keys", "<tool_call>now</tool_call><tool_call>now\n</tool_call>", "now{}now{}"),
        ("python", "<|tool_call_start|>[now(a='x', b=[True, None])]<|tool_call_end|>",
         'now{"a": "x", "b": [true, null]}'),
        ("bare", '<|tool_call>call:now{a:{b:<|"|>x,}<|"|>,c:[1,true]}}<tool_call|>',
         'now{"a": {"b":"x,}","c":[1,true]}}'),
        ("channels", "<|channel|>final<|message|>Hi <b>there", "Hi <b>there"),
        ("channels", "Hi there", "Hi there"),
        ("channels", " to=us all", " to=us all"),
        ("channels", " to=functions.now<|channel|>commentary json<|message|>{}", "now{}"),
        ("channels", "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}",
         "now{}"),
        # What is no call is text.
        ("hermes", "<tool_call>no JSON</tool_call>", "<tool_call>no JSON</tool_call>"),
        ("hermes", '<tool_call>{"name": "other", "arguments": {}}</tool_call>',
         '<tool_call>{"name": "other", "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "no', '<tool_call>{"name": "no'),
        ("named", "[TOOL_CALLS]now[ARGS]x", "[TOOL_CALLS]now[ARGS]x"),
        ("named", "[TOOL_CALLS]other[ARGS]{}", "[TOOL_CALLS]other[ARGS]{}"),
        ("xml", "<tool_call>\n<function=now>\nHm", "<tool_call>\n<function=now>\nHm"),
        ("channels", "<|channel|>commentary to=functions.other<|message|>{}", "{}"),
        # What is cut off is as far as it came.
        ("hermes", '<tool_call>{"name": "now", "arguments": {"a": [', 'now{"a": ['),
        ("hermes", '<tool_call>{"name": "now", "arguments": {}}\n</tool_', "now{}"),
        ("list", '[TOOL_CALLS][{"name": "now", "arguments": {}, "id": "abc', "now{}"),
        ("xml", "<tool_call><function=get_weather><parameter=city>\nOs", 'get_weather{"city": "Os'),
        ("xml", "<tool_call><function=get_weather>\n<param", "get_weather"),
        ("xml", "<tool_call><function=now>\n</func", "now{}"),
        ("python", "<|tool_call_start|>[now(a=", 'now{"a": '),
        ("channels", "<|channel|>anal", ""),
    ],
)  # fmt: skip
def test_answers_that_are_not_as_the_template_writes_them(name, text, expected):
    for size in (None, 1, 7):
        content, _, calls = parsed(FORMATS[name].parser(TOOLS), text, size)
        assert content + "".join(a + b for a, b in calls) == expected


DEFINITIONS = {
    "text": {"type": "string"},
    "loop": {"anyOf": [{"$ref": "#/$defs/loop"}] * 9 + [{"type": "integer"}]},
}


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": "string"}, "12", "12"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "12", "12"),
        ({"type": "integer"}, "12", 12),
        ({"type": "boolean"}, "True", True),
        ({"type": "array"}, "['a', None]", ["a", None]),
        ({"anyOf": [{"type": "number"}, {"type": "string"}]}, "1.5", 1.5),
        ({"$ref": "#/$defs/text"}, "1.5", "1.5"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"const": 1}, "1", 1),
        ({"type": "integer"}, "twelve", "twelve"),
        ({"type": 7}, "NaN", "NaN"),
        ({}, '{"a": 1}', {"a": 1}),
        ({}, "a\n b ", "a\n b "),
        ({"type": "object"}, r"{'a': '\d'}", {"a": r"\d"}),
        ({"$ref": "#/$defs/loop"}, "1", 1),
    ],
)
def test_values_are_of_the_type_that_the_schema_allows(schema, text, expected):
    parameters = {"properties": {"x": schema}, "$defs": DEFINITIONS}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    answer = f"<tool_call>\n<function=f>\n<parameter=x>\n{text}\n</parameter>\n</function>"
    _, _, calls = parsed(FORMATS["xml"].parser(tools), answer)
    assert json.loads(calls[0][1]) == {"x": expected}


def test_without_tools_all_is_text_but_reasoning():
    text = '<think>a</think>b <tool_call>{"name": "now"}</tool_call>'
    assert parsed(FORMATS["hermes"].parser(), text) == (text[16:], "a", [])
    assert parsed(FORMATS["text"].parser(TOOLS), text) == (text, "", [])
    text = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b"
    assert parsed(FORMATS["channels"].parser(), text, 5) == ("b", "a", [])


def test_a_prompt_that_has_begun_a_message():
    prompt = "<|start|>assistant<|channel|>analysis<|message|>"
    parser = FORMATS["channels"].parser(TOOLS, prompt + "So ")
    assert parts(parser.push("it is.<|end|>") + parser.finish()) == ("", "it is.", [])
    parser = FORMATS["thoughts"].parser(None, "<think>\n")
    assert parts(parser.push("So.") + parser.finish()) == ("", "So.", [])

"""The formats of answers that short templates write, and what each reads of its own template."""

import json

import pytest

from tensor_ops_decode.serving.formats.call_syntax import (
    CallSyntax,
    ChannelSyntax,
    JsonStyle,
    NamedCall,
    ObjectCall,
    ParameterCall,
    ReasoningSyntax,
)
from tensor_ops_decode.serving.formats.find_format import answer_format
from tensor_ops_decode.serving.formats.loose_text import ID_HOLE, INDEX_HOLE
from tool_templates import CALLS, LONE, PLAIN, TEMPLATES, TOOLS, parsed, template, written

KINDS = {
    "hermes": ObjectCall,
    "llama": ObjectCall,
    "list": ObjectCall,
    "named": NamedCall,
    "section": NamedCall,
    "ids": NamedCall,
    "xml": ParameterCall,
    "keys": ParameterCall,
    "typed": ParameterCall,
    "python": ParameterCall,
    "bare": ParameterCall,
}
THINK = ReasoningSyntax("<think>", "</think>")


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_format_reads_what_its_template_writes(name):
    chosen = template(name)
    found = answer_format(chosen.render)
    assert isinstance(getattr(found.tool_calls, "call", None), KINDS.get(name, type(None)))
    for calls in (CALLS[:1], CALLS[1:2], CALLS):
        if len(calls) > 1 and name in LONE:
            continue
        prompt, answer = written(chosen, found, calls)
        for size in (None, 1):
            content, reasoning, read = parsed(found.parser(TOOLS, prompt), answer, size)
            assert (content, reasoning) == ("", "")
            assert [(name, json.loads(arguments)) for name, arguments in read] == calls


@pytest.mark.parametrize("name", ["hermes", "xml", "channels"])
def test_reasoning_is_read_before_calls(name):
    chosen = template(name)
    found = answer_format(chosen.render)
    prompt, answer = written(chosen, found, CALLS[:1], reasoning_content="Which\ncity?")
    content, reasoning, calls = parsed(found.parser(TOOLS, prompt), answer)
    assert (content, reasoning, len(calls)) == ("", "Which\ncity?", 1)


def test_what_stands_around_calls_is_what_the_template_writes():
    style = JsonStyle()
    found = answer_format(template("hermes").render)
    call = ObjectCall('{"name": "', '", "arguments": ', "}", "name", "arguments", style)
    between = "\n</tool_call>\n<tool_call>\n"
    assert found.tool_calls == CallSyntax("<tool_call>\n", between, "\n</tool_call>", call)
    assert found.reasoning == THINK
    assert (found.has_text_arguments, found.has_named_ids) == (False, False)
    found = answer_format(template("list").render)
    assert found.tool_calls.start == "[TOOL_CALLS]["
    assert found.tool_calls.call.tail == f', "id": "{ID_HOLE}"}}'
    found = answer_format(template("ids").render)
    assert found.has_named_ids
    assert found.tool_calls.call.middle == f":{INDEX_HOLE}<|args|>"
    assert found.call_id("f", 2) == "functions.f:2"
    assert answer_format(template("section").render).has_text_arguments
    call = answer_format(template("xml").render).tool_calls.call
    assert (call.key_start, call.text_start, call.value_end) == (
        "<parameter=",
        ">\n",
        "\n</parameter>\n",
    )
    call = answer_format(template("bare").render).tool_calls.call
    assert (call.quote, call.separator, call.bare_keys) == ('<|"|>', ",", True)
    found = answer_format(template("channels").render)
    marks = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "assistant")
    assert found.tool_calls == found.reasoning == ChannelSyntax(*marks)


def test_json_is_written_as_the_template_does():
    source = TEMPLATES["llama"].replace("tojson", "tojson(separators=(',', ':'))")
    call = answer_format(template(source).render).tool_calls.call
    assert call.style == JsonStyle(",", ":")


def test_templates_without_calls_or_that_refuse_them():
    for source in (
        PLAIN,
        "{{ messages[0].nothing.at_all }}",
        PLAIN.replace("{{ m.content }}", "{{ m.content + '' }}"),
        "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('no') }}{% endif %}"
        "{{ m.content }}{% endfor %}",
    ):
        found = answer_format(template(source).render)
        assert (found.tool_calls, found.reasoning) == (None, None)
        with pytest.raises(ValueError, match="writes no calls"):
            found.grammar(TOOLS)
        text = '<tool_call>{"name": "now"}</tool_call> '
        assert parsed(found.parser(TOOLS), text, 3) == (text, "", [])


@pytest.mark.parametrize(
    "source",
    [
        PLAIN + "{% if add_generation_prompt %}<assistant><think>\n{% endif %}",
        PLAIN + "{% if enable_thinking is false %}<think>\n\n</think>{% endif %}",
        PLAIN.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}"),
        PLAIN.replace(
            "{{ m.c", "{% if m.thinking %}<think>{{ m.thinking }}</think>{% endif %}{{ m.c"
        ),
    ],
)
def test_reasoning_that_only_part_of_a_template_shows(source):
    assert answer_format(template(source).render).reasoning == THINK


def test_content_as_it_is_written_has_no_reasoning():
    source = PLAIN.replace("m.content", "m.content | tojson")
    assert answer_format(template(source).render).reasoning is None

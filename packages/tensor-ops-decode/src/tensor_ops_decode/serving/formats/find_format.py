"""Finds how a model writes calls of tools and reasoning, by what its chat template writes.

No family of models is known by name: the marks are those that stand around made up calls and
thoughts.
"""

import json
import re
from typing import Any

from tensor_ops_decode.serving.formats.answer_deltas import ArgumentsDelta, CallDelta
from tensor_ops_decode.serving.formats.answer_format import AnswerFormat
from tensor_ops_decode.serving.formats.call_probes import json_syntax, parameter_syntax
from tensor_ops_decode.serving.formats.call_syntax import CallSyntax, ChannelSyntax, ReasoningSyntax
from tensor_ops_decode.serving.formats.loose_text import ID_HOLE
from tensor_ops_decode.serving.formats.template_probes import (
    CONTENT,
    ID,
    INNER,
    INNER_KEY,
    KEYS,
    NAMES,
    NUMBER,
    REASONING,
    TEXTS,
    TOOLS,
    Render,
    TemplateProbes,
    WrittenCalls,
    common_begin,
    pieces_between,
)

__all__ = ["answer_format"]

_TAG = r"<[^<>\s]+>|\[[^\[\]\s]+\]"
_THINKING = {"enable_thinking": True, "thinking": True}
_OPENED = r"<([^<>/\s]*think[^<>/\s]*)>\s*(?:</\1>\s*)?$"
_THINK = ReasoningSyntax("<think>", "</think>")


def answer_format(render: Render) -> AnswerFormat:
    """Return the format of a model's answers.

    Parameters
    ----------
    render : callable
        ``render(messages, tools=None, add_generation_prompt=True)`` returns the text that the
        template writes. A ValueError or TypeError is for messages that it refuses.
    """
    probes = TemplateProbes(render)
    if probes.said is None:
        return AnswerFormat(None, _reasoning(TemplateProbes(render, None)))
    given = WrittenCalls(probes)
    if (channels := _channels(probes)) is not None:
        has_calls = given.calls((NAMES[0], {})) is not None
        return AnswerFormat(channels if has_calls else None, channels)
    reasoning = _reasoning(probes)
    ways = [
        (given, json_syntax),
        (WrittenCalls(probes, has_named_ids=True), json_syntax),
        (given, parameter_syntax),
    ]
    by_object = given.calls((NAMES[0], {KEYS[0]: TEXTS[0]}))
    if by_object is None or f"{{'{KEYS[0]}'" in by_object:
        text_only = WrittenCalls(probes, has_text_arguments=True)
        named_text = WrittenCalls(probes, has_text_arguments=True, has_named_ids=True)
        ways += [(text_only, json_syntax), (named_text, json_syntax)]
    for written, find in ways:
        if (syntax := find(written)) is not None:
            has_text, has_ids = written.has_text_arguments, written.has_named_ids
            found = AnswerFormat(syntax, reasoning, has_text, has_ids)
            if _reads_back(found, written):
                return found
    return AnswerFormat(None, reasoning)


# Reasoning.


def _reasoning(probes: TemplateProbes) -> ReasoningSyntax | None:
    """Return what stands around reasoning, if the template knows of any."""
    thought = {"reasoning_content": REASONING}
    blocks = [{"type": "thinking", "thinking": REASONING}, {"type": "text", "text": CONTENT}]
    call = WrittenCalls(probes).call(NAMES[0], {KEYS[0]: TEXTS[0]})
    for message in (
        {**thought, "content": CONTENT},
        {"content": blocks},
        {**thought, "content": "", "tool_calls": [call]},
        {**thought, "tool_calls": [call]},
    ):
        for variables in ({}, _THINKING):
            text = probes.answer(message, **variables)
            end = CONTENT if "tool_calls" not in message else NAMES[0]
            pieces = None if text is None else pieces_between(text, (REASONING, end))
            if pieces is not None and (found := _around(probes, pieces[0], pieces[1])) is not None:
                return found
    text = probes.answer({"content": f"{REASONING}{_THINK.end}{CONTENT}"})
    if text is not None and CONTENT in text and REASONING not in text:
        return _THINK
    for variables in ({}, _THINKING, dict.fromkeys(_THINKING, False)):
        # What begins reasoning, or has none in it.
        opened = re.search(_OPENED, probes.begun_with(**variables))
        if opened is not None:
            return ReasoningSyntax(f"<{opened[1]}>", f"</{opened[1]}>")
    return None


def _around(probes: TemplateProbes, before: str, after: str) -> ReasoningSyntax | None:
    """Return the marks of reasoning, from what stands before it and what stands behind it."""
    said = (probes.said or "").partition(CONTENT)[0]
    own = before[len(common_begin(before, said)) :].strip()
    mark = re.match(_TAG, after.strip())
    end = mark[0] if mark else after.strip()
    behind = after.strip()[len(end) :].lstrip()
    if not end or (own and not re.match(_TAG, own)) or not re.match(f"{_TAG}|$|[\\[{{]", behind):
        return None
    if not own:
        # A template that writes empty reasoning where there is none, or begins the answer with it.
        tag = re.search(f"(?:{_TAG})\\s*$", before) if end in said else None
        begun = probes.begun
        own = (tag[0] if tag else begun[len(common_begin(begun, before)) :]).strip()
    return ReasoningSyntax(own, end) if own else None


def _channels(probes: TemplateProbes) -> ChannelSyntax | None:
    """Return the marks of messages with headers, if an answer is one."""
    mark, said = r"<[^<>\s]+>", probes.said or ""
    match = re.search(rf"({mark})(\w+)({mark})final({mark}){CONTENT}", said)
    if match is None or not probes.begun.endswith(match[1] + match[2]):
        return None
    end = re.match(mark, said)
    return ChannelSyntax(match[1], match[3], match[4], end[0] if end else "<|end|>", match[2])


def _reads_back(answers: AnswerFormat, written: WrittenCalls) -> bool:
    """Return whether a format reads the calls that the template wrote."""
    nested = {KEYS[0]: TEXTS[0], KEYS[1]: NUMBER, KEYS[2]: {INNER_KEY: INNER}}
    calls: list[tuple[str, Any]] = [(NAMES[0], nested), (NAMES[1], {KEYS[0]: TEXTS[1]})]
    syntax = answers.tool_calls
    has_several = isinstance(syntax, CallSyntax) and syntax.between is not None
    series = [calls[:1], calls[1:], *([calls] if has_several else [])]
    return all(_read(answers, written.calls(*each) or "") == each for each in series)


def _read(answers: AnswerFormat, text: str) -> list[tuple[str, Any]] | None:
    """Return the calls that a format reads in a text; None if their arguments are no JSON."""
    parser = answers.parser(TOOLS)
    found: list[list[str]] = []
    for delta in [*parser.push(text.replace(ID_HOLE, ID)), *parser.finish()]:
        if isinstance(delta, CallDelta):
            found.append([delta.name, ""])
        elif isinstance(delta, ArgumentsDelta):
            found[delta.index][1] += delta.text
    try:
        return [(name, json.loads(arguments)) for name, arguments in found]
    except ValueError:
        return None

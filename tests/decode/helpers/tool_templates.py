"""Short chat templates that write calls of tools in the ways of many models, and a tokenizer."""

import json
import random

import tokenizers

from byte_models import END, byte_letters
from tensor_ops_decode.serving.formats.answer_deltas import (
    ArgumentsDelta,
    CallDelta,
    ContentDelta,
    ReasoningDelta,
)
from tensor_ops_decode.text import ChatTemplate, Tokenizer

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tells the weather.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "maxLength": 6},
                    "days": {"type": "integer", "minimum": 0, "maximum": 14},
                    "unit": {"enum": ["C", "F"]},
                    "area": {
                        "type": "object",
                        "properties": {"km": {"type": "number"}, "open": {"type": "boolean"}},
                        "required": ["km"],
                        "additionalProperties": False,
                    },
                },
                "required": ["city", "area"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "now", "description": "Tells the time."}},
]
CALLS = [
    ("get_weather", {"area": {"km": 1.5, "open": True}, "city": 'Zürich "A"', "days": 3}),
    ("now", {}),
    ("get_weather", {"area": {"km": 2}, "city": "12"}),
]


def _template(call, start="", end="", between="", *, thinks=False):
    """Return a template in the way of ChatML, with what it writes for each call."""
    start, between, end = (each.replace("\n", "{{ '\\n' }}") for each in (start, between, end))
    thoughts = (
        "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    )
    return (
        "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        + (thoughts if thinks else "")
        + "{{ m.content }}{% for c in m.tool_calls %}{% set f = c.function %}"
        + f"{{% if loop.first %}}{start}{{% else %}}{between}{{% endif %}}{call}"
        + f"{{% if loop.last %}}{end}{{% endif %}}"
        + "{% endfor %}<|im_end|>\n{% endfor %}"
        + "{% if add_generation_prompt %}<|im_start|>assistant\n"
        + ("{% if enable_thinking %}<think>\n{% endif %}" if thinks else "")
        + "{% endif %}"
    )


_OBJECT = '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}'
_LONE = "{% if m.tool_calls | length > 1 %}{{ raise_exception('one call only') }}{% endif %}"
_CHANNELS = """\
{% for m in messages %}\
{% if m.role == 'assistant' and m.tool_calls %}\
{% if m.reasoning_content %}\
<|start|>assistant<|channel|>analysis<|message|>{{ m.reasoning_content }}<|end|>{% endif %}\
{% set f = m.tool_calls[0].function %}<|start|>assistant to=functions.{{ f.name }}\
<|channel|>commentary json<|message|>{{ f.arguments | tojson }}<|call|>\
{% elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>\
{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}\
{% if add_generation_prompt %}<|start|>assistant{% endif %}"""
_GEMMA = """\
{% macro value(v) %}{% if v is string %}<|"|>{{ v }}<|"|>\
{% elif v is mapping %}{{ '{' }}{% for k, w in v | dictsort %}{% if not loop.first %},{% endif %}\
{{ k }}:{{ value(w) }}{% endfor %}{{ '}' }}\
{% elif v is boolean %}{{ 'true' if v else 'false' }}{% else %}{{ v }}{% endif %}{% endmacro %}"""

TEMPLATES = {
    "hermes": _template("<tool_call>\n" + _OBJECT + "\n</tool_call>", between="\n", thinks=True),
    "llama": _template(
        _LONE + '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}'
    ),
    "list": _template(
        '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}, "id": "{{ c.id }}"}',
        "[TOOL_CALLS][",
        "]",
        ", ",
    ),
    "named": _template("[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}"),
    "section": _template(
        "<|call_begin|>function<|sep|>{{ f.name }}\n```json\n{{ f.arguments }}\n```<|call_end|>",
        "<|calls_begin|>",
        "<|calls_end|>",
        "\n",
    ).replace("{{ f.arguments }}", "{{ '' + f.arguments }}"),
    "ids": _template(
        "<|call_begin|>{{ c.id }}<|args|>{{ f.arguments | tojson }}<|call_end|>",
        "<|calls_begin|>",
        "<|calls_end|>",
    ),
    "xml": _template(
        "<tool_call>\n<function={{ f.name }}>\n{% for k, v in f.arguments.items() %}"
        "<parameter={{ k }}>\n{{ v if v is string else v | tojson }}\n</parameter>\n{% endfor %}"
        "</function>\n</tool_call>",
        between="\n",
        thinks=True,
    ),
    "keys": _template(
        "<tool_call>{{ f.name }}\n{% for k, v in f.arguments.items() %}<arg_key>{{ k }}</arg_key>\n"
        "<arg_value>{{ v if v is string else v | tojson }}</arg_value>\n{% endfor %}</tool_call>",
        between="\n",
    ),
    "typed": _template(
        '<invoke name="{{ f.name }}">\n{% for k, v in f.arguments.items() %}'
        '<parameter name="{{ k }}" string="{{ "true" if v is string else "false" }}">'
        "{{ v if v is string else v | tojson }}</parameter>\n{% endfor %}</invoke>",
        "<calls>\n",
        "\n</calls>",
        "\n",
    ),
    "python": _template(
        "{{ f.name }}({% for k, v in f.arguments.items() %}{% if not loop.first %}, {% endif %}"
        "{{ k }}={{ v | tojson }}{% endfor %})",
        "<|tool_call_start|>[",
        "]<|tool_call_end|>",
        ", ",
    ),
    "bare": _GEMMA
    + _template(
        "<|tool_call>call:{{ f.name }}{{ '{' }}{% for k, v in f.arguments | dictsort %}"
        "{% if not loop.first %},{% endif %}{{ k }}:{{ value(v) }}{% endfor %}{{ '}' }}<tool_call|>"
    ),
    "channels": _CHANNELS,
}
# What each template writes of calls: those that it refuses more of, or forgets, have one.
LONE = {"llama", "channels"}
_TURN = "<|im_start|>assistant\n"
PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"


def template(name):
    return ChatTemplate(TEMPLATES.get(name, name))


def written(chosen, found, calls, **message):
    """Return a prompt, and the answer with calls that the template writes behind it."""
    given = [
        {
            "id": found.call_id(name, index),
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for index, (name, arguments) in enumerate(calls)
    ]
    question = {"role": "user", "content": "hi"}
    answer = {"role": "assistant", "content": "", **message, "tool_calls": given}
    text = chosen.render(found.seen_messages([question, answer]), tools=TOOLS)
    text = text.removesuffix(_TURN).removesuffix("<|im_end|>\n")
    prompt = chosen.render([question], tools=TOOLS, add_generation_prompt=True)
    return prompt, text.removesuffix("<|start|>assistant").removesuffix("<|call|>")[len(prompt) :]


def tokenizer(special=()):
    """Return a tokenizer with a token for each byte, one that ends texts, and special tokens."""
    letters = {letter: byte for byte, letter in enumerate(byte_letters())}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=letters, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<|im_end|>", *special])
    return Tokenizer(made, bos=None, eos=END, end_tokens=[END])


def parts(deltas):
    """Return the content, the reasoning, and the calls as names with arguments as JSON."""
    content, reasoning, calls = "", "", []
    for delta in deltas:
        if isinstance(delta, ContentDelta):
            content += delta.text
        elif isinstance(delta, ReasoningDelta):
            reasoning += delta.text
        elif isinstance(delta, CallDelta):
            assert delta.index == len(calls)
            calls.append((delta.name, ""))
        elif isinstance(delta, ArgumentsDelta):
            assert delta.index == len(calls) - 1
            calls[-1] = (calls[-1][0], calls[-1][1] + delta.text)
    return content, reasoning, calls


def parsed(parser, text, size=None):
    """Return the parts of an answer that comes in pieces of a size."""
    size = size or len(text) or 1
    pieces = [text[place : place + size] for place in range(0, len(text), size)]
    return parts([delta for piece in pieces for delta in parser.push(piece)] + parser.finish())


_CLOSING = {*b']}"<'}


def walk(constraint, words, chance):
    """Return tokens that a constraint allows, by chance, up to where they may end.

    Words such as quotes come more often than others, so that texts and lists end.
    """
    tokens = []
    draw = random.Random(chance)
    while not constraint.is_complete(tokens):
        assert len(tokens) < 2000
        is_long = len(tokens) > 100
        allowed = constraint.allowed(tokens).nonzero()[0].tolist()
        if END in allowed and (len(allowed) == 1 or is_long or draw.random() < 0.5):
            break
        if is_long or draw.random() < 0.4:
            known = len(tokens)
            for token in draw.choice(words):
                if not constraint.allows(tokens, token):
                    break
                tokens.append(token)
            if len(tokens) > known:
                continue
        choices = [token for token in allowed if token != END]
        ends = [token for token in choices if is_long and token in _CLOSING]
        plain = [token for token in choices if 97 <= token < 123 or 48 <= token < 58]
        tokens.append(draw.choice(ends or plain or choices))
    return tokens

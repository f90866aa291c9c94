"""Messages as templates see them: what transformers leaves out, adds and takes for an object."""

import dataclasses
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("jinja2")
tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

from tokenizers import decoders, models, pre_tokenizers  # noqa: E402

from tensor_ops_decode.text import ChatTemplate, Tokenizer, encode_chat  # noqa: E402

# Templates that do what is done with messages, and one that shows all of a message, in its order.
TEMPLATES = [
    "{{ messages | tojson }}{{ tools | tojson }}{{ documents | tojson }}",
    "{% for m in messages %}<{{ m.role }}>{% if m.content %}{{ m.content }}{% endif %}"
    "{{ m.content is defined }}{{ m['content'] is none }}{{ m.keys() | list }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}",
    "{% for m in messages %}{% if m.reasoning_content is string %}<think>{{ m.reasoning_content }}"
    "</think>{% endif %}{{ m.thinking }}{{ m.reasoning }}{{ m.content }}{% endfor %}",
]
CALL = {"function": {"name": "f", "arguments": {"a": None, "b": [None, {"c": None}]}}, "id": None}


@dataclasses.dataclass
class Said:
    role: str
    content: object = None
    tool_calls: object = None


class Dumped:
    """An object as those of libraries of servers are."""

    def __init__(self, **values):
        self._values = values

    def model_dump(self):
        return self._values


USER = {"role": "user", "content": "Hi"}
CHATS = [
    [USER],
    [{"role": "system", "content": None}, USER],
    [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}],
    [USER, {"role": "assistant", "content": "", "tool_calls": None, "name": None}],
    [{"role": "user", "content": [{"type": "text", "text": None}]}],
    [Said("user", "Hi"), Said("assistant", [Said("x")], [CALL, Dumped(function=Said("f"))])],
    [Dumped(role="user", content=MappingProxyType({"a": 1})), MappingProxyType(USER)],
    [{"role": "user", "content": "", "n": np.float32(1.5), "b": np.bool_(False), "i": np.int64(3)}],
    [{}, {"role": "user"}],
]
NAMES = ("reasoning_content", "thinking", "reasoning")
for first in (None, "", "one", ["a"]):
    for second in (None, "two"):
        for third in (None, "three"):
            given = dict(zip(NAMES, (first, second, third), strict=True))
            for said in (given, {key: value for key, value in given.items() if value is not None}):
                CHATS.append([USER, {**said, "role": "assistant", "content": "x"}])
                CHATS.append([USER, {"role": "assistant", "content": "x", **said}])
CHATS += [[USER, {"role": "assistant", "content": None, name: "why"}, USER] for name in NAMES]


@pytest.fixture(scope="module")
def opened():
    """Our tokenizer and that of transformers."""
    letters = {letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = tokenizers.Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    return Tokenizer(tokenizer, bos=None, eos=None), theirs


@pytest.mark.parametrize("source", TEMPLATES, ids=range(len(TEMPLATES)))
def test_templates_see_of_messages_what_they_see_in_transformers(opened, source):
    ours, theirs = opened
    tools = [CALL, {"name": "f", "parameters": None}]
    documents = [{"title": None, "text": "x"}]
    for messages in CHATS:
        for given in ({}, {"tools": tools, "documents": documents}):
            tokens = encode_chat(ours, ChatTemplate(source), messages, given)
            expected = theirs.apply_chat_template(
                messages, chat_template=source, add_generation_prompt=True, tokenize=False, **given
            )
            assert ours.decode(tokens) == expected


def test_what_was_given_stays_as_it_was(opened):
    messages = [{"role": "assistant", "content": None, "thinking": "why", "x": [None]}]
    encode_chat(opened[0], ChatTemplate(TEMPLATES[0]), messages, {})
    assert messages == [{"role": "assistant", "content": None, "thinking": "why", "x": [None]}]


@pytest.mark.parametrize(
    ("messages", "error", "expected"),
    [
        ([], ValueError, "a conversation has at least one message, got none"),
        ("Hi", TypeError, r"messages must be a sequence of mappings, but messages\[0\] is 'H'"),
        (USER, TypeError, r"messages must be a sequence of mappings, but messages\[0\] is 'role'"),
        (None, TypeError, "messages must be a sequence of mappings, got None"),
        ([USER, ["a"]], TypeError, r"messages\[1\] is \['a'\]"),
        ([[USER]], TypeError, r"messages\[0\] is \[\{'role'"),
        ([USER, SimpleNamespace(role="user")], TypeError, "of type SimpleNamespace is not JSON se"),
        ([{"role": "user", "content": np.zeros(3)}], TypeError, "of type ndarray is not JSON ser"),
    ],
)
def test_what_is_no_conversation_is_an_error(opened, messages, error, expected):
    with pytest.raises(error, match=expected):
        encode_chat(opened[0], ChatTemplate(TEMPLATES[0]), messages, {})


def test_tools_and_documents_are_objects(opened):
    for name in ("tools", "documents"):
        for given, expected in (({"a": 1}, "got {'a': 1}"), (["a"], rf"but {name}\[0\] is 'a'")):
            with pytest.raises(
                TypeError, match=f"{name} must be a sequence of mappings, {expected}"
            ):
                encode_chat(opened[0], ChatTemplate(TEMPLATES[0]), [USER], {name: given})


def test_a_function_as_a_tool_is_an_error_that_says_how_to_describe_it(opened):
    def weather(city: str):
        """Say how the weather is.

        Args:
            city: Where.
        """

    for tool in (weather, Dumped(x=1).model_dump, print):
        with pytest.raises(TypeError, match="get_json_schema"):
            encode_chat(opened[0], ChatTemplate(TEMPLATES[0]), [USER], {"tools": [tool]})
    schema = transformers.utils.get_json_schema(weather)
    tokens = encode_chat(opened[0], ChatTemplate(TEMPLATES[0]), [USER], {"tools": [schema]})
    expected = opened[1].apply_chat_template(
        [USER], tools=[weather], chat_template=TEMPLATES[0], tokenize=False
    )
    assert opened[0].decode(tokens) == expected

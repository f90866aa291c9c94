"""A final message that the model is to continue: cut where transformers cuts, its names text."""

import itertools

import pytest

pytest.importorskip("jinja2")
tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

from model_templates import MODELS  # noqa: E402
from tokenizers import AddedToken, decoders, models, pre_tokenizers  # noqa: E402

from tensor_ops_decode.text import ChatTemplate, Tokenizer, encode_chat  # noqa: E402

OTHERS = {
    "trims": "{% for m in messages %}<s>{{ m.content | trim }} </s>{% endfor %}",
    "keeps": "{% for m in messages %}<s>{{ m.content }}</s>\n{% endfor %}",
    "joins": "{% for m in messages %}<s>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{{ c.text }}|{% endfor %}{% endif %}</s>{% endfor %}",
    "thinks": "{% for m in messages %}<s>{{ m.thinking }}</s>{{ m.content }}</s>{% endfor %}",
    "as JSON": "{% for m in messages %}<s>{{ m.content | tojson }}</s>{% endfor %}{{ tools }}",
    "drops": "<s>{{ messages[0].content }}</s>",
    "changes": "{% for m in messages %}<s>{{ m.content | replace('a', 'b') }}</s>{% endfor %}",
    "last first": "{% for m in messages[::-1] %}<s>{{ m.content }}</s>{% endfor %}",
}
TEXTS = ["Yes, ", "a", " a b  ", "\n", "", "x <", "é🙂", "\U00100000 \U000f0000"]
CONTENTS = [
    *TEXTS,
    [{"type": "text", "text": "one"}, {"type": "text", "text": "two "}],
    [{"type": "text", "text": "one "}, {"type": "image"}],
    [{"type": "image"}],
    [],
]
USER = {"role": "user", "content": "Hi"}


def chats():
    """Yield chats whose last message may be continued, and by which key."""
    for content in CONTENTS:
        yield [USER, {"role": "assistant", "content": content}], True
        yield [{"role": "user", "content": content}], "content"
    for name, field in itertools.product(("reasoning", "thinking", "reasoning_content"), repeat=2):
        yield [USER, {"role": "assistant", "content": "", name: "so "}], field
        yield [USER, {"role": "assistant", "content": "so", name: "so ", "thinking": "so "}], field
    yield [USER, {"role": "assistant", "content": None, "reasoning": "so"}], True
    yield [USER, {"role": "assistant", "content": "x"}], "name"


@pytest.fixture(scope="module")
def opened():
    """A function from special tokens to our tokenizer of bytes and that of transformers."""

    def opened(special):
        letters = {each: n for n, each in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
        tokenizer = tokenizers.Tokenizer(models.BPE(letters, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in special])
        theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
        return Tokenizer(tokenizer, bos=None, eos=None), theirs

    return opened


@pytest.mark.parametrize("name", [*OTHERS, *MODELS])
def test_a_message_is_cut_where_transformers_cuts_it(opened, name):
    _, source, special = MODELS.get(name, (None, OTHERS.get(name), ["<s>", "</s>"]))
    names = {"bos_token": special[0], "eos_token": special[1]}
    (ours, theirs), template = opened(special), ChatTemplate(source, names)
    for messages, field in chats():
        try:
            expected = theirs.apply_chat_template(
                messages, chat_template=source, continue_final_message=field, **names
            )
        except Exception:  # Jinja's, and its own
            with pytest.raises(ValueError, match=r"final message|chat template"):
                encode_chat(ours, template, messages, {}, continue_final_message=field)
        else:
            tokens = encode_chat(ours, template, messages, {}, continue_final_message=field)
            assert tokens == expected["input_ids"], messages


@pytest.mark.parametrize("name", ["trims", "keeps", "joins", *MODELS])
def test_names_of_special_tokens_in_it_are_text(opened, name):
    _, source, special = MODELS.get(name, (None, OTHERS.get(name), ["<s>", "</s>"]))
    names = {"bos_token": special[0], "eos_token": special[1]}
    (ours, _), template = opened(special), ChatTemplate(source, names)

    def encoded(text):
        messages = [USER, {"role": "assistant", "content": text}]
        tokens = encode_chat(ours, template, messages, {}, continue_final_message=True)
        return tokens, [token for token in tokens if ours.is_special(token)]

    _, expected = encoded("x")
    for each, end in itertools.product(special, ("{}", "a {}", "{} b ", "{}{}")):
        text = end.format(each, each)
        tokens, marks = encoded(text)
        assert marks == expected
        assert ours.decode(tokens, skip_special_tokens=False).rstrip().endswith(text.rstrip())
        _, marks = encoded(text[:-1])
        assert marks == expected


def test_a_message_that_a_template_writes_twice_is_cut_the_second_time(opened):
    ours, _ = opened(["<s>"])
    for change, expected in (("string", "<s>so |<s>so "), ("trim", "<s>so|<s>so")):
        written = "<s>{{ messages[0].content | " + change + " }}"
        template = ChatTemplate(written + "|" + written + "<s>")
        messages = [{"role": "user", "content": "so "}]
        tokens = encode_chat(ours, template, messages, {}, continue_final_message=True)
        assert ours.decode(tokens, skip_special_tokens=False) == expected


def test_what_marks_an_end_in_transformers_is_text_like_any_other(opened):
    ours, _ = opened(["<s>", "</s>"])
    template = ChatTemplate("{{ messages[-1].content }}|{{ tools[0].x }}</s>")
    mark = "CONTINUE_FINAL_MESSAGE_TAG "
    given = {"tools": [{"x": mark}]}
    messages = [{"role": "user", "content": f"{mark}so"}]
    tokens = encode_chat(ours, template, messages, given, continue_final_message=True)
    assert ours.decode(tokens) == messages[0]["content"]


@pytest.mark.parametrize(
    ("content", "field", "expected"),
    [
        (7, True, "the final message has no text as its 'content', to be continued"),
        ("x", "refusal", "the final message has no text as its 'refusal', to be continued"),
        ("x", "role", "the chat template reads no 'role' of messages, to be continued"),
        ("ab", True, "the chat template failed: it does not write the final message as it is"),
    ],
)
def test_what_cannot_be_continued_is_an_error(opened, content, field, expected):
    ours, _ = opened(["<s>"])
    template = ChatTemplate("{{ messages[0].content | string | replace('a', '') }}")
    messages = [{"role": "user", "content": content}]
    with pytest.raises(ValueError, match=expected):
        encode_chat(ours, template, messages, {}, continue_final_message=field)
    with pytest.raises(ValueError, match="give one of the two"):
        template.render(messages, add_generation_prompt=True, continue_final_message=field)

"""The tokens that a folder's files add: transformers' tokens, flags and text for any such files."""

import itertools
import json
import shutil

import pytest

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

from tokenizers import (  # noqa: E402
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from tensor_ops_decode.text import ChatTemplate, encode_chat, open_tokenizer  # noqa: E402
from tensor_ops_decode.weights import FileFormatError, open_weights  # noqa: E402

TEXTS = [
    "", "hello <s> hello", "<s>hello</s>", "a<n>b <n> c", "<dd> hello <dd>", "<a><b><tool>",
    " <a> x<a>y <b>  <b>z <tool> q</s><x>hello ", "<A>HELLO <pad> <B><cls> <sep>  ",
    "xx<mask> <unk> <T2>a<e1> b<e2> c",
]  # fmt: skip


def token(content, **flags):
    return {"content": content, **flags}


# Added tokens of tokenizer.json itself.
OWN = [
    [],
    [AddedToken("<a>", special=True), AddedToken("<b>")],
    [
        AddedToken("<s>", special=True),
        AddedToken("</s>", special=False),
        AddedToken("<a>", lstrip=True),
        AddedToken("<pad>", rstrip=True),
    ],
]
BOTH = {"bos_token": "<s>", "eos_token": "</s>"}
CONFIGS = {
    "no names": {},
    "names": BOTH,
    "new names": {
        **{f"{name}_token": f"<{name}>" for name in ("pad", "cls", "sep", "mask", "unk")},
        **BOTH,
    },
    "objects": {
        "bos_token": {"__type": "AddedToken", **token("<s>", lstrip=True, normalized=True)},
        "eos_token": {"__type": "AddedToken", **token("<e1>", rstrip=True, normalized=False)},
    },
    "added_tokens_decoder": {
        "bos_token": "<s>",
        "added_tokens_decoder": {
            "300": token("<a>", rstrip=True, normalized=False, special=False),
            "299": token("<b>", lstrip=True, rstrip=True, special=True),
            "10": token("</s>", special=True),
        },
    },
    "single words": {
        "eos_token": "<a>",
        "pad_token": "<zz>",
        "added_tokens_decoder": {
            "500": token("<a>", single_word=True),
            "263": token("<dd>", normalized=True, special=False),
            "262": token("<n>", single_word=True),
        },
    },
    "empty added_tokens_decoder": {"bos_token": "<s>", "added_tokens_decoder": {}},
    "a list": {"extra_special_tokens": ["<a>", "<x>"], "eos_token": "</s>"},
    "an object": {"extra_special_tokens": {"tool_token": "<tool>", "t2": "<T2>"}},
    "additional": {"additional_special_tokens": ["<b>", "<x>"]},
    "both": {"additional_special_tokens": ["<b>"], "extra_special_tokens": ["<x>"]},
    "an object and additional": {
        "extra_special_tokens": {"tool_token": "<tool>"},
        "additional_special_tokens": ["<x>", "<s>"],
    },
    "an own name": {"tool_token": "<tool>", "bos_token": "<s>"},
    "split": {"bos_token": "<s>", "split_special_tokens": True},
    "add both": {**BOTH, "add_bos_token": True, "add_eos_token": True},
    "add end": {**BOTH, "add_eos_token": True},
    "add none": {**BOTH, "add_bos_token": False},
    "add no end": {**BOTH, "add_eos_token": False},
}
FILES = {
    "no files": {},
    "map": {
        "special_tokens_map.json": {
            "bos_token": "<e1>",
            "pad_token": token("<pad>", lstrip=True, rstrip=True, normalized=False),
        }
    },
    "map, extra": {
        "special_tokens_map.json": {
            "eos_token": "<e2>",
            "extra_special_tokens": ["<x>", token("<b>", lstrip=True)],
        }
    },
    "map, additional": {"special_tokens_map.json": {"additional_special_tokens": ["<a>", "<e1>"]}},
    "added": {"added_tokens.json": {"<a>": 270, "<dd>": 263, "<b>": 264, "<tool>": 900}},
    "map and added": {
        "special_tokens_map.json": {"eos_token": "<dd>", "cls_token": token("<cls>", rstrip=True)},
        "added_tokens.json": {"<dd>": 800, "<cls>": 801, "<n>": 5},
    },
}


def write(folder, config, files, *, own=(), lowercase=False, adds_bos=False):
    """Write the files of a tokenizer, and open what a model's folder needs beside them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "he", "ll", "hell", "hello", "<s>"]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o")]
    tokenizer = tokenizers.Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, merges))
    tokenizer.normalizer = normalizers.Lowercase() if lowercase else None
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(list(own))
    if adds_bos:
        number = tokenizer.token_to_id("<s>")
        begin = {"single": "<s> $A", "special_tokens": [("<s>", number)]}
        tokenizer.post_processor = processors.TemplateProcessing(**begin)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    needed = {"config.json": {"model_type": "llama"}, "model.safetensors.index.json": INDEX}
    for name, value in {**needed, **files, "tokenizer_config.json": config}.items():
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return open_weights(folder)


INDEX = {"weight_map": {}}


@pytest.mark.parametrize("config", CONFIGS)
def test_tokens_and_text_are_those_of_transformers(config, tmp_path):
    layouts = itertools.cycle(itertools.product(OWN, (False, True), (False, True)))
    for number, (name, files) in enumerate(FILES.items()):
        for own, lowercase, adds_bos in itertools.islice(layouts, 1 + number % 2):
            layout = {"own": own, "lowercase": lowercase, "adds_bos": adds_bos}
            ours = open_tokenizer(write(tmp_path / "a", CONFIGS[config], files, **layout))
            theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
            assert (ours.eos, len(theirs)) == (theirs.eos_token_id, ours.vocab_size), name
            for text in TEXTS:
                expected = theirs.encode(text)
                tokens = ours.encode(text, parse_special_tokens=True)
                # A text that begins with the token gets no second one.
                twice = adds_bos and expected[:2] == [ours.bos] * 2
                assert tokens == expected[twice:], (name, layout, text)
                texts = [ours.decode(expected, skip_special_tokens=skip) for skip in (True, False)]
                assert texts == [
                    theirs.decode(expected, skip_special_tokens=skip) for skip in (True, False)
                ]
                split = theirs.encode(text, split_special_tokens=True)
                twice = adds_bos and split[:2] == [ours.bos] * 2
                assert ours.encode(text) == split[twice:], (name, layout, text)


@pytest.mark.parametrize("splits", [False, True])
def test_names_in_messages_follow_the_flags(splits, tmp_path):
    config = {
        "extra_special_tokens": ["<x>"],
        "added_tokens_decoder": {"1": token("<b>", special=True), "2": token("<dd>")},
        "split_special_tokens": splits,
    }
    ours = open_tokenizer(write(tmp_path / "a", config, {}, own=[AddedToken("<b>")]))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    source = "<x>{{ messages[0].content }}<b>"
    template = ChatTemplate(source, {})

    def tokens(content):
        return encode_chat(ours, template, [{"role": "user", "content": content}], {})

    def expected(content):
        chat = [{"role": "user", "content": content}]
        return theirs.apply_chat_template(chat, chat_template=source, return_dict=False)

    assert tokens("hello") == expected("hello")
    assert sum(map(ours.is_special, tokens("hello"))) == (0 if splits else 2)
    # Special ones are text, others stand for their token in every text.
    found = tokens("<x><b><dd>")
    assert ours.decode(found, skip_special_tokens=False) == "<x><x><b><dd><b>"
    assert sum(map(ours.is_special, found)) == (0 if splits else 2)
    assert theirs.convert_tokens_to_ids("<dd>") in found


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"added_tokens_decoder": []}, "added_tokens_decoder is"),
        ({"added_tokens_decoder": {"x": token("<a>")}}, "'x'"),
        ({"added_tokens_decoder": {"1": "<a>", "2": 5}}, "a token is 5; expected a text, or"),
        ({"extra_special_tokens": [{"text": "<a>"}]}, "a token is {'text': '<a>'}; expected"),
        ({"added_tokens_decoder": {"1": token("<a>", lstrip="yes")}}, "the tokenizer cannot be"),
    ],
)
def test_what_describes_no_token_is_an_error_that_names_the_folder(config, message, tmp_path):
    weights = write(tmp_path / "a", config, {})
    with pytest.raises(FileFormatError, match=message) as found:
        open_tokenizer(weights)
    assert str(tmp_path / "a") in str(found.value)

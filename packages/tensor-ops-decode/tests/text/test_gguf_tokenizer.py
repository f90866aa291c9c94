"""Tokenizers of GGUF files: the rules that a file names, and what is refused."""

import random
import unicodedata
from itertools import pairwise

import pytest

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")

from tokenizer_files import (
    MERGES,
    TEXTS,
    assert_streams_as_decoded,
    byte_level_names,
    sentence_piece_names,
    write_gguf,
)

from tensor_ops_decode.text import open_chat_templates, open_tokenizer
from tensor_ops_decode.text.pre_tokenizers import PRE_TOKENIZERS
from tensor_ops_decode.weights import FileFormatError

# Those of GPT-2's expression, which transformers takes for files that name none of its own.
GPT2 = {"gpt-2", "olmo", "smollm", "refact"}


def test_each_pattern_cuts_words_as_its_models_do(tmp_path):
    # The vocabulary has "Ġ 1 2 3" and "123": what is one token shows what was one word.
    names = [*byte_level_names(), "Ġ123", "don", "don't", "ĠĠĠ", "//Ċ"]
    merges = [*MERGES, "Ġ 123", "d o", "do n", "don '", "don' t", "ĠĠ Ġ", "/ /", "// Ċ"]
    names += ["do", "don'", "//"]
    digits = {1: ["Ġ", "1", "2", "3", "4"], 3: ["Ġ", "123", "4"], 4: ["Ġ123", "4"]}
    number = {
        "default": 3, "gpt-2": 4, "smollm": 1, "llama-bpe": 3, "llama3": 3, "llama-v3": 3,
        "falcon3": 3, "smaug-bpe": 3, "tekken": 1, "qwen2": 1, "deepseek-r1-qwen": 1,
        "megrez": 1, "dbrx": 3, "gpt-4o": 3, "olmo": 4, "refact": 1,
    }  # fmt: skip
    assert number.keys() == PRE_TOKENIZERS.keys()
    for pre, length in number.items():
        file = write_gguf(tmp_path / f"{pre}.gguf", pre=pre, names=names, merges=merges)
        tokenizer = open_tokenizer(file)

        def cut(text, tokenizer=tokenizer):
            return [tokenizer.token(t) for t in tokenizer.encode(text, add_special_tokens=False)]

        assert cut(" hello 1234") == ["Ġhello", *digits[length]], pre
        assert ("don't" in cut("don't")) == (pre == "gpt-4o"), pre
        assert ("//Ċ" in cut("//\n")) == (pre not in {"default", *GPT2}), pre
        for text in TEXTS:
            tokens = tokenizer.encode(text)
            composed = unicodedata.normalize("NFC", text)
            assert tokenizer.decode(tokens) == (composed if "qwen" in pre else text)
            assert_streams_as_decoded(tokenizer, tokens)


def test_words_are_cut_by_the_expressions_of_transformers():
    mapping = pytest.importorskip("transformers.integrations.gguf.gguf_tokenizer_mapping")
    theirs = mapping.GGUF_PRE_TOKENIZER_SPLITS
    ours = {name: rule.patterns for name, rule in PRE_TOKENIZERS.items() if name in theirs}
    assert ours == {name: (theirs[name],) for name in ours}
    assert len(ours) == len(PRE_TOKENIZERS) - len({"default", *GPT2})


def test_llama_3_takes_a_word_of_the_vocabulary_whatever_the_merges(tmp_path):
    names = [*byte_level_names(), "xyz"]
    for pre, expected in (("llama3", ["xyz"]), ("tekken", ["xyz"]), ("dbrx", ["x", "y", "z"])):
        tokenizer = open_tokenizer(write_gguf(tmp_path / f"{pre}.gguf", pre=pre, names=names))
        assert [tokenizer.token(token) for token in tokenizer.encode("xyz")] == expected


@pytest.mark.parametrize(
    ("pre", "keys", "added"),
    [
        ("gpt-2", {}, (False, False)),
        ("gpt-2", {"add_bos_token": True, "add_eos_token": True}, (True, True)),
        ("llama-bpe", {}, (True, False)),
        ("llama-bpe", {"add_bos_token": False}, (False, False)),
        ("tekken", {}, (True, False)),
        ("gpt-4o", {}, (False, False)),
    ],
)
def test_tokens_around_a_text_are_added_as_the_file_says(pre, keys, added, tmp_path):
    file = write_gguf(tmp_path / "a.gguf", pre=pre, bos_token_id=0, eos_token_id=264, **keys)
    tokenizer = open_tokenizer(file)
    tokens = tokenizer.encode("hello", add_special_tokens=False)
    assert tokenizer.token(tokens[0]) == "hello"
    assert tokenizer.encode("hello") == [0] * added[0] + tokens + [264] * added[1]
    assert tokenizer.adds_bos is added[0]


def test_a_text_that_begins_with_bos_gets_no_second_one(tmp_path):
    file = write_gguf(tmp_path / "a.gguf", pre="llama-bpe", bos_token_id=264)
    tokenizer = open_tokenizer(file)
    hello = tokenizer.encode("hello", add_special_tokens=False)
    assert tokenizer.encode("<|end|>hello", parse_special_tokens=True) == [264, *hello]
    assert tokenizer.encode("<|end|><|end|>", parse_special_tokens=True) == [264, 264]
    # The name of a token in a text that is not parsed is text, after the one token that begins it.
    text = tokenizer.encode("<|end|>hello")
    assert text.count(264) == 1
    assert tokenizer.decode(text) == "<|end|>hello"


def test_user_defined_tokens_are_parsed_always_and_are_text(tmp_path):
    tokenizer = open_tokenizer(write_gguf(tmp_path / "a.gguf", eot_token_id=264))
    assert [tokenizer.token(t) for t in tokenizer.encode("a<u>b")] == ["a", "<u>", "b"]
    assert tokenizer.decode(tokenizer.encode("a<u>b")) == "a<u>b"
    assert tokenizer.end_tokens == {264}


def test_an_answer_of_several_messages_goes_on_after_the_end_of_one(tmp_path):
    names = [*byte_level_names(), "<|return|>", "<|call|>"]
    tokenizer = open_tokenizer(write_gguf(tmp_path / "a.gguf", names=names))
    assert {tokenizer.token(token) for token in tokenizer.end_tokens} == {"<|return|>", "<|call|>"}


@pytest.mark.parametrize("kind", [1, 3, 4])
def test_a_token_that_ends_a_turn_is_special_whatever_the_file_says(kind, tmp_path):
    kinds = [kind if name == "<|end|>" else 1 for name in byte_level_names()]
    tokenizer = open_tokenizer(write_gguf(tmp_path / "a.gguf", kinds=kinds))
    assert tokenizer.end_tokens == {264}
    assert 264 not in tokenizer.encode("<|end|>")
    assert tokenizer.encode("<|end|>", parse_special_tokens=True) == [264]
    assert tokenizer.decode([264]) == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "bert"}, "the tokenizer 'bert' is not supported; expected gpt2, llama or"),
        ({"model": None}, r"'tokenizer\.ggml\.model': it is missing; expected str"),
        (
            {"pre": "viking"},
            "'viking' is not supported; expected default, gpt-2, olmo, smollm, ",
        ),
        (
            {"pre": None},
            r"'tokenizer\.ggml\.pre': it is missing.* expected .*; convert the model anew",
        ),
        ({"merges": None}, r"'tokenizer\.ggml\.merges': it is missing; expected list"),
        ({"merges": ["a"]}, "'a'; expected two tokens"),
        ({"merges": ["no such"]}, "'no such'; expected tokens of the vocabulary that are one"),
        ({"merges": ["hello hello"]}, "'hello hello'; expected tokens of the vocabulary"),
        ({"names": ["a", "a"]}, "a token is there twice"),
        ({"names": ["a" * 5000]}, "a token of 5000 characters; expected at most 4096"),
        ({"kinds": [1]}, r"'tokenizer\.ggml\.token_type'; expected an array of 266 numbers"),
        ({"bos_token_id": 1000}, r"bos_token_id': 1000; expected a token below 266"),
        ({"add_bos_token": 3}, "it is int; expected bool"),
    ],
)
def test_a_tokenizer_that_cannot_be_is_refused(changes, message, tmp_path):
    file = write_gguf(tmp_path / "a.gguf", **changes)
    with pytest.raises(FileFormatError, match=message) as raised:
        open_tokenizer(file)
    assert str(raised.value).startswith(f"{file.path}: ")


@pytest.mark.parametrize("token", [-1, 1000, 2**32 - 1, 1.5], ids=repr)
@pytest.mark.parametrize("key", ["padding_token_id", "unknown_token_id"])
def test_a_chat_template_has_no_name_of_what_is_no_token(tmp_path, monkeypatch, key, token):
    pytest.importorskip("jinja2")
    file = write_gguf(tmp_path / "a.gguf", bos_token_id=1)
    of_template = {"tokenizer.chat_template": "{{ bos_token }}", f"tokenizer.ggml.{key}": token}
    monkeypatch.setattr(file, "metadata", {**file.metadata, **of_template})
    template = open_chat_templates(file, open_tokenizer(file)).chosen()
    assert template.variables.keys() == {"bos_token"}


# SentencePiece


def sentence_piece(path, *, names=None, kinds=None, scores=None, **keys):
    names = sentence_piece_names() if names is None else names
    kinds = kinds or [2, 3, 3, *[6] * 256, *[1] * (len(names) - 259)]
    scores = scores or [0.0] * 259 + [
        -float(i) for i in random.Random(0).sample(range(100), len(kinds) - 259)
    ]
    defaults = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
    keys = {**defaults, "scores": scores, **keys}
    file = write_gguf(path, model="llama", pre=None, names=names, kinds=kinds, merges=None, **keys)
    return open_tokenizer(file), names, scores


def merged_by_score(text, names, scores):
    """The rule of SentencePiece: merge the neighbours whose union has the best score, first."""
    pieces, number = list(text), {name: i for i, name in enumerate(names)}
    while True:
        pairs = [(a + b, i) for i, (a, b) in enumerate(pairwise(pieces)) if a + b in number]
        if not pairs:
            break
        best, i = max(pairs, key=lambda pair: (scores[number[pair[0]]], -pair[1]))
        pieces[i : i + 2] = [best]
    tokens = []
    for piece in pieces:
        tokens += [number[piece]] if piece in number else [3 + byte for byte in piece.encode()]
    return tokens


def test_sentence_piece_merges_by_score(tmp_path):
    tokenizer, names, scores = sentence_piece(tmp_path / "a.gguf")
    draw = random.Random(1)
    letters = "etaohlwrd  " * 3 + "xé🙂\n"
    for _ in range(500):
        text = "".join(draw.choice(letters) for _ in range(draw.randrange(1, 30)))
        expected = merged_by_score("▁" + text.replace(" ", "▁"), names, scores)
        assert tokenizer.encode(text, add_special_tokens=False) == expected, text
        assert tokenizer.decode(expected) == text
        assert_streams_as_decoded(tokenizer, expected)


def test_sentence_piece_begins_with_bos_and_a_space_unless_the_file_says_otherwise(tmp_path):
    tokenizer, names, _ = sentence_piece(tmp_path / "a.gguf")
    assert [names[token] for token in tokenizer.encode("hello")] == ["<s>", "▁hello"]
    assert tokenizer.encode("") == [1]
    assert tokenizer.decode(tokenizer.encode(" hello")) == " hello"
    plain, names, _ = sentence_piece(
        tmp_path / "b.gguf", add_bos_token=False, add_space_prefix=False
    )
    assert "".join(names[token] for token in plain.encode("hello")) == "hello"
    assert plain.decode(plain.encode(" hello")) == " hello"


GEMMA4 = ["<unk>", "<bos>", "<eos>", "<turn|>", "<|tool_response>", "</s>", "▁", "a", "b", "▁a"]
GEMMA4 += ["▁ab", "\n", "\n\n", *(f"<0x{byte:02X}>" for byte in range(256))]


def gemma4(path, **keys):
    defaults = {
        "merges": ["▁ a", "▁a b", "\n \n"],
        "kinds": [2, 3, 3, 3, 4, *[1] * 8, *[6] * 256],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "add_bos_token": False,
    }
    return write_gguf(path, model="gemma4", pre=None, names=GEMMA4, **(defaults | keys))


def test_gemma_4_merges_whole_texts_as_the_file_says(tmp_path):
    tokenizer = open_tokenizer(gemma4(tmp_path / "a.gguf"))
    text = "a ab  b\n\n\nxé</s>"
    tokens = tokenizer.encode(text)
    cut = ["<bos>", "a", "▁ab", "▁", "▁", "b", "\n\n", "\n", "<0x78>", "<0xC3>", "<0xA9>"]
    assert [GEMMA4[token] for token in tokens[:11]] == cut
    assert 5 not in tokens  # it is a token, but no merge makes it of a text
    assert tokenizer.decode(tokens) == text
    assert_streams_as_decoded(tokenizer, tokens)
    assert {GEMMA4[token] for token in tokenizer.end_tokens} == {
        "<eos>",
        "<turn|>",
        "<|tool_response>",
    }


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"merges": None}, "key 'tokenizer.ggml.merges': it is missing; expected list"),
        ({"merges": ["a"]}, "key 'tokenizer.ggml.merges': 'a'; expected two tokens"),
        ({"merges": ["b a"]}, "'b a'; expected tokens of the vocabulary that are one together"),
        ({"unknown_token_id": 999}, "key 'tokenizer.ggml.unknown_token_id': 999; expected a token"),
    ],
)
def test_a_wrong_tokenizer_of_gemma_4_is_refused(keys, words, tmp_path):
    with pytest.raises(FileFormatError) as caught:
        open_tokenizer(gemma4(tmp_path / "a.gguf", **keys))
    assert words in str(caught.value)


def test_a_text_never_becomes_a_control_token(tmp_path):
    names = [*sentence_piece_names(), "</", "s>", "<", "/", "s", ">", "<0", "x41>", "x", "0"]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(names) - 259)]
    scores = [0.0] * len(names)
    tokenizer, _, _ = sentence_piece(tmp_path / "a.gguf", names=names, kinds=kinds, scores=scores)
    for text in ("</s>", "<s>", "<0x41>"):
        tokens = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(tokens) == text
        assert len(tokens) > 1
    assert tokenizer.encode("</s>", parse_special_tokens=True) == [1, 2]


def test_special_tokens_of_phi_3_swallow_the_spaces_after_them(tmp_path):
    names = [*sentence_piece_names(), "<|user|>", "<|end|>", "<|endoftext|>"]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(names) - 262), 3, 3, 3]
    text = "<|user|>\n hello<|end|>\n\n<|endoftext|> a<s> a"
    end = ["<|endoftext|>", "▁", "▁a", "<s>", "▁", "▁a"]
    lines = ["<|user|>", "▁", "<0x0A>", "▁hello", "<|end|>", "▁", "<0x0A>", "<0x0A>"]
    expected = {"phi3": ["<|user|>", "▁hello", "<|end|>", *end], "llama": [*lines, *end]}
    for architecture, cut in expected.items():
        path = tmp_path / f"{architecture}.gguf"
        scores = [0.0] * len(names)
        scores[names.index("▁▁")] = -1000.0
        tokenizer, _, _ = sentence_piece(
            path, architecture=architecture, names=names, kinds=kinds, scores=scores
        )
        tokens = tokenizer.encode(text, add_special_tokens=False, parse_special_tokens=True)
        assert [names[token] for token in tokens] == cut


def test_user_defined_tokens_of_gemma_are_found_before_the_text_is_cut(tmp_path):
    # The converter writes them with spaces, as they stand in a text.
    names = [*sentence_piece_names(), "\n\n", "  ", "   ", "<table>"]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(names) - 263), 4, 4, 4, 4]
    scores = [0.0] * 259 + [-float(i) for i in range(len(names) - 259)]
    tokenizer, _, _ = sentence_piece(
        tmp_path / "a.gguf",
        architecture="gemma3",
        names=names,
        kinds=kinds,
        scores=scores,
        add_space_prefix=False,
    )
    text = "the   world\n\n<table> a  hello\n"
    tokens = tokenizer.encode(text)
    expected = ["<s>", "t", "he", "   ", "wor", "ld", "\n\n", "<table>", "▁a", "  ", "hello"]
    assert tokenizer.decode(tokens) == text
    assert [names[token] for token in tokens[-1:]] == ["<0x0A>"]
    assert "".join(names[token] for token in tokens[:-1]) == "".join(expected)
    runs = tokenizer.encode("a" + " " * 5, add_special_tokens=False)
    assert [names[token] for token in runs] == ["a", "   ", "  "]

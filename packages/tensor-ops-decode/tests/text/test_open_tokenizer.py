"""Folders whose class of tokenizers has a pipeline of its own: transformers' tokens and texts."""

import itertools

import pytest

transformers = pytest.importorskip("transformers")

from tokenizer_files import sentence_piece, write_folder  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

from tensor_ops_decode.text import open_tokenizer  # noqa: E402
from tensor_ops_decode.weights import open_weights  # noqa: E402

TEXTS = [
    "",
    "hello",
    " hello",
    "hello</s><s>hello",
    "<s>hello</s> the world",
    "he  llo\n",
    "▁he",
    "é",
]
CONFIGS = [
    {},
    {"legacy": False},
    {"legacy": True},
    {"legacy": None, "add_prefix_space": True},
    {"add_prefix_space": False},
    {"add_prefix_space": None, "legacy": True, "pad_token": "</s>"},
]


@pytest.mark.parametrize("kind", ["LlamaTokenizer", "LlamaTokenizerFast", None])
@pytest.mark.parametrize("model_type", ["llama", "mistral"])
def test_tokens_and_texts_are_those_of_the_class(kind, model_type, tmp_path):
    layouts = itertools.product(CONFIGS, (True, False), (True, False))
    for number, (config, is_old, byte_fallback) in enumerate(layouts):
        files = {
            "tokenizer_config.json": {"tokenizer_class": kind} | config if kind else config,
            "config.json": {"model_type": model_type},
            "model.safetensors.index.json": {"weight_map": {}},
        }
        folder = tmp_path / str(number)
        folder.mkdir()
        write_folder(folder, files=files)
        sentence_piece(is_old, byte_fallback).save(str(folder / "tokenizer.json"))
        ours = open_tokenizer(open_weights(folder))
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        for text in TEXTS:
            expected = theirs.encode(text, add_special_tokens=False)
            found = ours.encode(text, add_special_tokens=False, parse_special_tokens=True)
            assert found == expected, (config, is_old, byte_fallback, text)
            assert ours.decode(found) == theirs.decode(found, skip_special_tokens=True)
        assert ours.encode("hello") == theirs.encode("hello")


def test_a_token_that_pads_is_known_by_name(tmp_path):
    files = {
        "config.json": {"model_type": "llama"},
        "model.safetensors.index.json": {"weight_map": {}},
    }
    for number, config in enumerate([{}, {"pad_token": "<|end|>"}]):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_folder(folder, files=files | {"tokenizer_config.json": config})
        made = Tokenizer.from_file(str(folder / "tokenizer.json"))
        made.enable_padding(pad_token="<x>", pad_id=0)
        made.save(str(folder / "tokenizer.json"))
        ours = open_tokenizer(open_weights(folder))
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        assert ours.pad_token == "<x>"
        assert ours.vocab_size == len(theirs)
        text = "he<x>llo<|end|>"
        assert ours.encode(text, parse_special_tokens=True) == theirs.encode(text)

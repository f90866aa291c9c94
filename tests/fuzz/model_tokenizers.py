"""Tokenizers with any part of their files changed: one that encodes, or a FileFormatError."""

import copy
import json
import tempfile
from pathlib import Path

import tokenizers
from changes import change
from choices import Choices
from model_bytes import gguf, keys_of, replace, safetensors
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from tensor_ops_decode import FileFormatError, open_weights
from tensor_ops_decode.text import open_tokenizer
from tensor_ops_decode.text.gguf_tokenizer import PRE_TOKENIZERS

__all__ = ["try_input"]

TEXTS = ["", " ", "hello he", "a<u>b<|end|>", "12 123", "é\n🙂 \t", "▁x<0x41>", "\0"]
WORDS = [
    "ByteLevel", "Sequence", "Replace", "Prepend", "Metaspace", "BPE", "WordPiece", "Unigram",
    "Split", "Regex", "(a*)*b", "(", "\\p{L}", "type", "pattern", "decoders", "pretokenizers",
    "unk_token", "byte_fallback", "Precompiled", "precompiled_charsmap", "AAAA", "Strip", "Fuse",
    "ByteFallback", "BertNormalizer", "TemplateProcessing", "WordLevel", "he", "normalized",
    "tokenizer.ggml.eot_token_id", "tokenizer.ggml.unknown_token_id", "chat_template",
]  # fmt: skip
ALPHABET = ["h", "e", "l", "o", "Ġ", "1", "2", "<", "u", ">", "Ã", "©"]
BYTE_LEVEL = [*ALPHABET, "he", "ll", "hell", "hello", "12", "<|end|>", "<u>"]
MERGES = ["h e", "l l", "he ll", "hell o", "1 2"]
PIECES = ["<unk>", "<s>", "</s>", "<0x41>", "<0xC3>", "▁", "h", "e", "l", "he", "▁he", "ll", "▁▁"]


def _gguf_tokenizers():
    """Return the metadata of a tokenizer of each kind."""
    prefix = "tokenizer.ggml."
    ids = {"bos_token_id": 1, "eos_token_id": 2, "add_bos_token": True}
    for pre in PRE_TOKENIZERS:
        kinds = [1] * (len(BYTE_LEVEL) - 2) + [3, 4]
        words = {"tokens": BYTE_LEVEL, "merges": MERGES, "token_type": kinds}
        made = {"model": "gpt2", "pre": pre, **words, **ids}
        yield {prefix + name: value for name, value in made.items()}
    scores = [-float(i) for i in range(len(PIECES))]
    kinds = [2, 3, 3, 6, 6] + [1] * (len(PIECES) - 5)
    made = {"model": "llama", "tokens": PIECES, "scores": scores, "token_type": kinds, **ids}
    made |= {"add_space_prefix": True}
    yield {prefix + name: value for name, value in made.items()}
    made |= {"model": "gemma4", "merges": ["h e", "▁ he", "l l"], "add_space_prefix": False}
    yield {prefix + name: value for name, value in made.items()}


def _json_tokenizers():
    """Return the files of a folder with a tokenizer of each kind."""
    byte_level = tokenizers.Tokenizer(
        models.BPE(
            {name: i for i, name in enumerate(BYTE_LEVEL)}, [tuple(m.split()) for m in MERGES]
        )
    )
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    byte_level.add_special_tokens(["<|end|>", "<|begin|>"])
    byte_level.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", len(BYTE_LEVEL))]
    )
    pieces = {name: i for i, name in enumerate(PIECES)}
    merges = [("h", "e"), ("▁", "he"), ("l", "l")]
    sentence_piece = tokenizers.Tokenizer(
        models.BPE(pieces, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    sentence_piece.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    sentence_piece.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    sentence_piece.add_special_tokens(["<s>", "</s>"])
    added = {"12": {"content": "<u>", "lstrip": True, "special": False}, "99": {"content": "<x>"}}
    legacy = {"extra_special_tokens": ["<y>"], "pad_token": {"content": "<pad>", "rstrip": True}}
    for tokenizer, config, special in (
        (byte_level, {"bos_token": "<|begin|>", "added_tokens_decoder": added}, {}),
        (sentence_piece, {"bos_token": "<s>", "split_special_tokens": False}, legacy),
    ):
        yield {
            "tokenizer.json": json.loads(tokenizer.to_str()),
            "tokenizer_config.json": {"eos_token": {"content": "</s>"}, **config},
            "special_tokens_map.json": special,
            "added_tokens.json": {"<x>": 7, "<y>": 40},
            "generation_config.json": {"eos_token_id": [2, 3]},
        }


KINDS = [*_gguf_tokenizers(), *_json_tokenizers()]
SEEDS = [bytes([i, 0]) for i in range(len(KINDS))]
_folder = tempfile.TemporaryDirectory(prefix="fuzz-model-tokenizers-")
FOLDER = Path(_folder.name)
FILE = FOLDER / "model.gguf"
(FOLDER / "config.json").write_text("{}", encoding="utf-8")
(FOLDER / "model.safetensors").write_bytes(safetensors({}))


def try_input(data):
    choices = Choices(data)
    place = choices.below(len(KINDS))
    files = copy.deepcopy(KINDS[place])
    for _ in range(choices.below(4)):
        change(files, choices, WORDS)
    if "tokenizer.json" in KINDS[place]:
        path = FOLDER
        for name in KINDS[place]:
            replace(FOLDER / name, json.dumps(files.get(name)).encode())
    else:
        path = FILE
        replace(FILE, gguf(keys_of(files), [], b""))
    try:
        tokenizer = open_tokenizer(open_weights(path))
    except FileFormatError as error:
        message = str(error)
        assert message.startswith(str(path)), message
        assert len(message) < 2000, message
        return
    for text in (*TEXTS, choices.rest().decode(errors="replace")):
        try:
            tokens = tokenizer.encode(text, parse_special_tokens=choices.rarely())
        except ValueError as error:
            message = str(error)
            assert message.startswith("the tokenizer cannot encode the text: "), message
            continue
        # Tokens that are added around a text may be any number.
        if all(token in tokenizer for token in tokens):
            decoded = tokenizer.decode(tokens)
            stream = tokenizer.stream()
            assert "".join([*map(stream.push, tokens), stream.finish()]) == decoded

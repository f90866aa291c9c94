"""Texts for tests of tokenizers, and files with a small tokenizer and nothing else."""

import json
import random

import gguf
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from tensor_ops_decode.weights import open_weights

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


def generated(count, seed=0):
    """Texts of random characters of many scripts, letters and spaces."""
    draw = random.Random(seed)
    kinds = ["abcXYZ", "  \n\t", ".,!?'\"()-_/", "éüñß", "中日한ก", "🙂👍\u200d🏽", "\u0301\u0308"]
    for _ in range(count):
        yield "".join(draw.choice(draw.choice(kinds)) for _ in range(draw.randrange(40)))


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


def write_gguf(
    path,
    *,
    architecture="llama",
    model="gpt2",
    pre="gpt-2",
    names=None,
    merges=MERGES,
    kinds=None,
    **keys,
):
    """Write a file with the keys of a tokenizer, by default one of bytes, and open it."""
    writer = gguf.GGUFWriter(path, architecture)
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


def write_folder(path, *, special=("<|end|>",), files=None, texts=None):
    """Write a folder with a tokenizer of bytes, and other files from JSON values or texts."""
    names = {name: token for token, name in enumerate(byte_level_names()[:-2])}
    tokenizer = Tokenizer(models.BPE(names, [tuple(merge.split()) for merge in MERGES]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    tokenizer.save(str(path / "tokenizer.json"))
    files = {"config.json": {}, "model.safetensors.index.json": {"weight_map": {}}} | (files or {})
    for name, value in files.items():
        (path / name).write_text(json.dumps(value), encoding="utf-8")
    for name, text in (texts or {}).items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    return open_weights(path)


def sentence_piece_names():
    words = "▁ e t a o h l w r d ▁t he ▁the ll ▁he llo ▁hello ▁a or ▁w ld ▁wor ▁world at ▁▁ ▁▁▁▁"
    controls = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    return controls + words.split(" ")


def sentence_piece(is_old, byte_fallback=True):
    """Return a small tokenizer as files of Llama 2 have it, or with Metaspace."""
    pieces = ["▁", "h", "e", "l", "o", "▁h", "he", "▁he", "ll", "llo", "▁hello", "hello", "t", "w"]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    merges = [("▁", "h"), ("h", "e"), ("▁h", "e"), ("l", "l"), ("ll", "o"), ("▁he", "llo")]
    vocabulary = {name: token for token, name in enumerate(names)}
    made = Tokenizer(
        models.BPE(
            vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback
        )
    )
    if is_old:
        spaces = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        made.normalizer = normalizers.Sequence(spaces)
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    made.add_special_tokens([AddedToken(n, normalized=False) for n in ("<unk>", "<s>", "</s>")])
    begin = {"single": "<s> $A", "special_tokens": [("<s>", 1)]}
    made.post_processor = processors.TemplateProcessing(**begin)
    return made

"""Constraints over tokenizers of all kinds: what their masks allow is the text that is decoded."""

import random
import re
from itertools import pairwise

import numpy as np
import pytest
import tokenizers
from tokenizer_files import (
    TEXTS,
    generated,
    sentence_piece,
    sentence_piece_names,
    write_folder,
    write_gguf,
)
from tokenizers import decoders, models, pre_tokenizers

from tensor_ops_decode.generation.constraints import Constraints
from tensor_ops_decode.text import open_tokenizer
from tensor_ops_decode.text.tokenizer import Tokenizer


def _gguf(path, **given):
    return open_tokenizer(write_gguf(path / "t.gguf", **given))


def _llama(path, **given):
    names = sentence_piece_names()
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(names) - 259)
    scores = {"scores": [-float(i) for i in range(len(names))]}
    given = {"names": names, "kinds": kinds, "merges": None, **scores, **given}
    return _gguf(path, model="llama", pre=None, **given)


def _metaspace(path, scheme="first"):
    names = [*sentence_piece_names(), *'{}[]":,0123456789bcfgijkmnpqsuvxyz']
    made = tokenizers.Tokenizer(models.BPE({n: i for i, n in enumerate(names)}, []))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    made.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return Tokenizer(made, bos=None, eos=None)


KINDS = {
    "bytes of a file": _gguf,
    "bytes in normal form": lambda path: _gguf(path, pre="qwen2"),
    "bytes of a folder": lambda path: open_tokenizer(write_folder(path)),
    "SentencePiece": _llama,
    "SentencePiece without a space": lambda path: _llama(path, add_space_prefix=False),
    "Llama 2": lambda path: Tokenizer(sentence_piece(True), bos=1, eos=2),
    "SentencePiece by Metaspace": lambda path: Tokenizer(sentence_piece(False), bos=1, eos=2),
    "Metaspace": _metaspace,
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def tokenizer(request, tmp_path):
    return request.param(tmp_path)


def walk(constraint, tokenizer, draw, most=80):
    """Return tokens at random, as the constraint allows them, and whether they are whole."""
    tokens = []
    while len(tokens) < most and not constraint.is_complete(tokens):
        (allowed,) = np.nonzero(constraint.allowed(tokens))
        if not allowed.size:
            break
        token = int(draw.choice(allowed))
        assert constraint.allows(tokens, token)
        if token in tokenizer.end_tokens:
            return tokens, True
        tokens.append(token)
    return tokens, constraint.is_complete(tokens)


def text_of(tokenizer, tokens):
    stream = tokenizer.stream(continues=True)
    return "".join([*map(stream.push, tokens), stream.finish()])


def test_bytes_of_tokens_are_what_they_write_behind_others(tokenizer):
    for text in [*TEXTS, *generated(100)]:
        try:
            tokens = tokenizer.encode(text, add_special_tokens=False)
        except ValueError:  # a vocabulary without all bytes
            continue
        tokens = [token for token in tokens if not tokenizer.is_special(token)]
        written = b"".join(map(tokenizer.token_bytes, tokens))
        assert text_of(tokenizer, tokens) == written.decode()


@pytest.mark.parametrize(
    ("name", "value", "regex"),
    [
        ("json_schema", {"type": "object", "properties": {"the world": {"enum": ["hello", 12]}},
         "required": ["the world"], "additionalProperties": False},
         r'\{"the world": ("hello"|12)\}'),
        ("regex", " ?(hello|the world|12) ?", None),
        ("regex", "[a-w ]{0,6}", None),
        ("regex", "e\u0301 vs é", None),
        ("grammar", 'start: "hello" (" world" | "123")', "hello( world|123)"),
    ],
)  # fmt: skip
def test_what_is_allowed_is_the_text(tokenizer, name, value, regex):
    vocabulary, draw = tokenizer.vocab_size + 5, random.Random(0)
    constraints = Constraints(tokenizer, vocabulary, tokenizer.end_tokens)
    compiled = constraints.compiled({name: value}, ignore_eos=False)
    written = {tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)}
    if "é" in value and b"\xcc" not in written:  # no token has a part of it
        tokens, is_whole = walk(compiled, tokenizer, draw)
        assert not is_whole
        assert "the constraint allows none" in compiled.problem(tokens)
        return
    for _ in range(20):
        tokens, is_whole = walk(compiled.copy(), tokenizer, draw)
        assert is_whole
        assert re.fullmatch(regex or value, text_of(tokenizer, tokens))


def test_what_must_follow_is_cut_into_the_tokens_of_the_text(tmp_path):
    tokenizer = _llama(tmp_path)
    constraints = Constraints(tokenizer, tokenizer.vocab_size, tokenizer.end_tokens)
    constraint = constraints.compiled({"regex": "the world"}, ignore_eos=False)
    tokens, _ = walk(constraint, tokenizer, random.Random(0))
    names = [tokenizer.token(token) for token in tokens]
    assert names[-1] == "▁world"
    assert "".join(names) == "the▁world"


class Interrupting(list):
    """Tokens while whose last ones are read Ctrl-C comes."""

    def __getitem__(self, key):
        if isinstance(key, slice):
            raise KeyboardInterrupt
        return super().__getitem__(key)


def test_tokens_that_a_constraint_has_had_are_taken_once_more_after_an_interrupt(tmp_path):
    tokenizer = _gguf(tmp_path)
    constraints = Constraints(tokenizer, tokenizer.vocab_size, tokenizer.end_tokens)
    constraint = constraints.compiled({"regex": "[ab]{3}c"}, ignore_eos=False)
    tokens, _ = walk(constraint.copy(), tokenizer, random.Random(0))
    other = constraint.copy()
    expected = [set(np.flatnonzero(constraint.allowed(tokens[:i]))) for i in range(len(tokens))]
    assert expected[0] == expected[1] != expected[3]
    for length in range(len(tokens)):
        if length:
            with pytest.raises(KeyboardInterrupt):
                other.allowed(Interrupting(tokens[:length]))
        assert set(np.flatnonzero(other.allowed(tokens[:length]))) == expected[length]
    assert all(len(a) >= len(b) for a, b in pairwise(expected))

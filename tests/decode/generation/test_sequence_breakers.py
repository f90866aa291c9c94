"""Texts at which repetitions end, as sequences of tokens."""

import pytest
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import decoders, models

from byte_models import byte_letters
from tensor_ops_decode.generation.sequence_breakers import TextBreakers
from tensor_ops_decode.text import Tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    """A tokenizer of bytes that joins some of them."""
    letters = byte_letters()
    joined = [("x", "a"), ("a", "b"), ("c", "d"), ("xa", "b")]
    names = [*letters, "xa", "ab", "cd", "xab", letters[0xC3] + letters[0xA9], "xabcdy"]
    vocabulary = {name: token for token, name in enumerate(names)}
    made = LibraryTokenizer(models.BPE(vocab=vocabulary, merges=joined))
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<abc>"])
    return Tokenizer(made, bos=None, eos=None)


def test_a_text_breaks_in_every_token_that_has_it_or_its_beginning(tokenizer):
    xa, ab, cd, xab, accented, whole, special = range(256, 263)
    a, b, d, x = b"abdx"
    texts = TextBreakers(tokenizer, 264)  # of which one has no token
    assert set(texts.of(("b",))) == {(b,), (ab,), (xab,), (whole,), (special,)}
    # The rest has the tokens that it has by itself.
    assert set(texts.of(("abcd",))) == {
        *((each, b, cd) for each in (a, xa)),
        *((each, cd) for each in (ab, xab)),
        (whole,),
    }
    assert set(texts.of(("xx",))) == {(x, x)}
    assert set(texts.of(("d", "é"))) == {(d,), (cd,), (whole,), (accented,)}
    assert not texts.of(())
    assert texts.of(("c",)) is texts.of(("c",))
    # Of 40 letters, 20 count behind the first.
    (found,) = texts.of(("q" * 40,))
    assert found == (ord("q"),) * 21

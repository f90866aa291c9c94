"""Text to tokens and back, over the `tokenizers` library.

Tokens are decoded as the `tokenizers` library does, but one by one: the pieces of a stream joined
are the text that the library returns for all tokens, with its replacement characters for bytes that
are no UTF-8.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import TypeAlias

import tokenizers

from tensor_ops_decode.text.placed_tokens import PlacedTokens, tokens_of
from tensor_ops_decode.text.special_names import Place, SpecialNames
from tensor_ops_decode.weights.mapped_file import FileFormatError

__all__ = ["MissingTokenizer", "TextStream", "Tokenizer", "is_of_library"]

_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")
_PRIVATE = range(0x100000, 0x10FFFE)  # characters for private use, which no normal form changes
_SPACE = "▁"  # what SentencePiece writes for a space
# The decoder of SentencePiece's models, which may be followed by one that strips a space.
_FALLBACK = [
    {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
# GPT-2 writes each byte as a visible character: itself, or one of those from U+0100 on.
_BYTE_OF = {
    chr(code): byte
    for byte, code in [
        *((byte, byte) for byte in _VISIBLE),
        *((byte, 0x100 + i) for i, byte in enumerate(sorted({*range(256)} - {*_VISIBLE}))),
    ]
}


class Tokenizer:
    """The tokenizer of a model; `open_tokenizer` makes one.

    Attributes
    ----------
    vocab_size : int
    bos, eos : int or None
        The token that begins a text, and the one that ends it.
    end_tokens : frozenset of int
        The tokens after which a model has no more to say, `eos` and those that end a turn.
    adds_bos : bool
        Whether the model expects texts to begin with `bos`, so that `encode` adds it.
    pad_token : str or None
        The name of the token that its file pads with, if it says so.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        bos: int | None,
        eos: int | None,
        end_tokens: Iterable[int] = (),
        split_special_tokens: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._splits = split_special_tokens
        self._lock = threading.Lock()  # the library has the parsing of special tokens as a state
        self._new_decoder = _decoder_of(tokenizer)
        self._added = tokenizer.get_added_tokens_decoder()
        self._placed: PlacedTokens | None = None
        self._quote = ""
        padding = tokenizer.padding
        tokenizer.no_padding()
        self.pad_token: str | None = padding["pad_token"] if padding else None
        self.vocab_size: int = tokenizer.get_vocab_size()
        self.bos, self.eos = bos, eos
        self.end_tokens = frozenset(end_tokens) | ({eos} if eos is not None else set())
        begin = tokenizer.encode("").ids[:1]  # an error, if what is added around texts is missing
        self.adds_bos = bos is not None and begin == [bos]

    def check_exists(self) -> None:
        """Raise an error if there is no tokenizer, and so no text; see `MissingTokenizer`."""

    def encode(
        self, text: str, *, add_special_tokens: bool = True, parse_special_tokens: bool = False
    ) -> list[int]:
        """Return the tokens of a text.

        Parameters
        ----------
        text : str
        add_special_tokens : bool, default True
            Whether to add what the model expects around a text, such as `bos`. The text that a chat
            template gives has it already.
        parse_special_tokens : bool, default False
            Whether the name of a special token in the text, such as ``<|im_end|>``, stands for that
            token. Text of a user should be encoded without. A text that begins with `bos` itself
            gets no second one. Where the model's files have ``split_special_tokens``, names are
            always text, those of chat templates too.

        Raises
        ------
        ValueError
            If the text has a lone surrogate, or the vocabulary lacks what the text needs.
        """
        text.encode()
        with self._lock:
            self._tokenizer.encode_special_tokens = self._splits or not parse_special_tokens
            try:
                tokens = tokens_of(self._tokenizer, text, add_special_tokens=add_special_tokens)
            except BaseException as error:
                if not is_of_library(error):
                    raise
                raise ValueError(f"the tokenizer cannot encode the text: {error}") from error
        if add_special_tokens and self.adds_bos and tokens[:2] == [self.bos, self.bos]:
            del tokens[0]
        return tokens

    @cached_property
    def special_names(self) -> SpecialNames:
        """The names that stand for special tokens where a text is parsed for them."""
        added = self._added.values()
        return SpecialNames(
            (token.content for token in added if token.special and not self._splits),
            (token.content for token in added if not token.special),
        )

    def encode_with_special(self, text: str, places: Sequence[Place]) -> list[int] | None:
        """Return the tokens of a text whose names of special tokens stand for them at these places.

        Elsewhere they are text. None is added around the text. It is None if there is no special
        token at one of the places after all: some swallow the spaces around them, others do not
        stand within a word.
        """
        text.encode()
        with self._lock:
            if self._placed is None or self._quote in text:
                self._quote = next(each for each in map(chr, _PRIVATE) if each not in text)
                self._placed = PlacedTokens(self._tokenizer, self._quote)
            placed = self._placed
        return placed.encode(text, places)

    def decode(self, tokens: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of tokens.

        Raises
        ------
        ValueError
            If a token is not in the vocabulary.
        """
        stream = self.stream(skip_special_tokens=skip_special_tokens)
        return "".join([*map(stream.push, tokens), stream.finish()])

    def stream(
        self,
        *,
        skip_special_tokens: bool = True,
        continues: bool = False,
        shown: frozenset[int] = frozenset(),
    ) -> TextStream:
        """Return a decoder that takes one token at a time.

        Some tokenizers write a space before a text, which is left out unless the tokens continue
        one. Where special tokens are skipped, those that are `shown` are not.
        """
        stream = TextStream(self, skip_special_tokens, shown)
        if continues:
            stream._decoder.push(_SPACE, True)
        return stream

    def token(self, token: int) -> str:
        """Return the name of a token, as the vocabulary has it."""
        name = self._tokenizer.id_to_token(token) if 0 <= token < 1 << 32 else None
        if name is None:
            raise ValueError(f"token {token} is not one of the vocabulary of {self.vocab_size}")
        return str(name)

    def find(self, name: str) -> int | None:
        """Return the token of a name, as the vocabulary has it; None if there is none."""
        token: int | None = self._tokenizer.token_to_id(name)
        return token

    def to_json(self) -> str:
        """Return the tokenizer as the text of a ``tokenizer.json``."""
        return self._tokenizer.to_str()

    def token_bytes(self, token: int) -> bytes | None:
        """Return what a token writes behind others; None if it is special, and writes nothing."""
        if self.is_special(token):
            return None
        return self._new_decoder().bytes_of(self.token(token), token in self._added)

    def __contains__(self, token: int) -> bool:
        """Return whether a token is in the vocabulary; a model's embedding may have more rows."""
        return 0 <= token < 1 << 32 and self._tokenizer.id_to_token(token) is not None

    def is_special(self, token: int) -> bool:
        """Return whether a token stands for no text."""
        added = self._added.get(token)
        return added is not None and added.special


class MissingTokenizer(Tokenizer):
    """The tokenizer of a folder without the file `path`: whatever has text is an error."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        empty = tokenizers.Tokenizer(tokenizers.models.BPE())
        empty.decoder = tokenizers.decoders.ByteLevel()
        super().__init__(empty, bos=None, eos=None)
        self.path = os.fspath(path)

    def check_exists(self) -> None:
        raise FileFormatError(
            f"{self.path} is missing: without it the model takes prompts of tokens and gives "
            "tokens, and has no text; put the file of the model there"
        )

    def encode(
        self, text: str, *, add_special_tokens: bool = True, parse_special_tokens: bool = False
    ) -> list[int]:
        self.check_exists()
        return []

    def token(self, token: int) -> str:
        self.check_exists()
        return ""


def is_of_library(error: BaseException) -> bool:
    """Return whether an error may be of the `tokenizers` library.

    It raises what has no class of its own; and a panic of Rust is no Exception.
    """
    return isinstance(error, Exception) or type(error).__module__ == "pyo3_runtime"


class TextStream:
    """Decodes tokens as they come, without ever giving half a character.

    What `push` returned for each token and `finish` at the end is together what `decode` returns
    for all of them.
    """

    def __init__(
        self, tokenizer: Tokenizer, skip_special_tokens: bool, shown: frozenset[int] = frozenset()
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens, self._shown = skip_special_tokens, shown
        self._decoder = tokenizer._new_decoder()

    def push(self, token: int) -> str:
        """Return the text that is complete with this token; often none of it is this token's."""
        name = self._tokenizer.token(token)
        is_skipped = self._skip_special_tokens and token not in self._shown
        if is_skipped and self._tokenizer.is_special(token):
            return ""
        return self._decoder.push(name, token in self._tokenizer._added)

    def pending(self) -> str:
        """Return the text that is complete, but was held back for bytes that may follow it."""
        return self._decoder.pending()

    def finish(self) -> str:
        """Return what was held back: a replacement character if a character is incomplete."""
        return self._decoder.finish()


# Decoders, each for one stream of tokens: `push` returns the text that is complete with a token,
# `pending` what else would be if nothing followed, and `finish` what was held back. `bytes_of` has
# the bytes of a token that is not the first one.


class _ByteLevel:
    """Each character of a name is a byte, as GPT-2 has it; added tokens are written as they are."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, name: str, added: bool) -> str:
        return self._utf8.decode(self.bytes_of(name, added))

    @staticmethod
    def bytes_of(name: str, added: bool) -> bytes:
        if added or not _BYTE_OF.keys() >= set(name):
            return name.encode()
        return bytes(_BYTE_OF[character] for character in name)

    def pending(self) -> str:
        return ""

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


class _ByteFallback:
    """Names are text, and tokens of one byte each write what the vocabulary has no name for.

    Bytes that follow one another are UTF-8 as a whole, or each is a replacement character. So they
    are held back until another token comes.
    """

    def __init__(self, strips_space: bool) -> None:
        self._strips_space = strips_space
        self._bytes = b""

    def push(self, name: str, added: bool) -> str:
        match = _BYTE_TOKEN.fullmatch(name)
        if match:
            self._bytes += bytes.fromhex(match[1])
            return ""
        return self._released(name.replace(_SPACE, " "))

    @staticmethod
    def bytes_of(name: str, added: bool) -> bytes:
        match = _BYTE_TOKEN.fullmatch(name)
        return bytes.fromhex(match[1]) if match else name.replace(_SPACE, " ").encode()

    def pending(self) -> str:
        try:
            text = self._bytes.decode()
        except UnicodeDecodeError:
            return ""
        return text.removeprefix(" ") if self._strips_space else text

    def finish(self) -> str:
        return self._released("")

    def _released(self, after: str) -> str:
        held, self._bytes = self._bytes, b""
        try:
            text = held.decode() + after
        except UnicodeDecodeError:
            text = "\ufffd" * len(held) + after
        if text and self._strips_space:
            self._strips_space = False
            text = text.removeprefix(" ")
        return text


class _Metaspace:
    """Names are text; the first one may begin with a space that no one wrote."""

    def __init__(self, strips_space: bool) -> None:
        self._space = "" if strips_space else " "

    def push(self, name: str, added: bool) -> str:
        space, self._space = self._space, " "
        return name.replace(_SPACE, space)

    @staticmethod
    def bytes_of(name: str, added: bool) -> bytes:
        return name.replace(_SPACE, " ").encode()

    def pending(self) -> str:
        return ""

    def finish(self) -> str:
        return ""


_Decoder: TypeAlias = _ByteLevel | _ByteFallback | _Metaspace


def _decoder_of(tokenizer: tokenizers.Tokenizer) -> Callable[[], _Decoder]:
    """Return what makes the decoders of a tokenizer.

    Raises ValueError if it decodes in another way than byte-level BPE and SentencePiece do.
    """
    state = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder else {}
    parts = state.get("decoders", [state])
    kinds = [part.get("type") for part in parts]
    if kinds == ["ByteLevel"]:
        return _ByteLevel
    if kinds == ["Metaspace"] and parts[0]["replacement"] == _SPACE:
        return partial(_Metaspace, parts[0]["prepend_scheme"] != "never")
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    if parts in (_FALLBACK, [*_FALLBACK, strip], [*_FALLBACK, strip | {"start": 0}]):
        return partial(_ByteFallback, strip in parts)
    raise ValueError(
        f"the decoder {' + '.join(map(str, kinds))} is not supported; supported are ByteLevel, "
        "Metaspace, and Replace + ByteFallback + Fuse (+ Strip)"
    )

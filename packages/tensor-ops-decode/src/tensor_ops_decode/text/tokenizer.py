"""Text to tokens and back, over the `tokenizers` library.

Decoding joins the bytes that the tokens stand for, and reads them as UTF-8 with the replacement
character for what is not; so text can be streamed, and the pieces are the whole.
"""

from __future__ import annotations

import codecs
import json
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass

import tokenizers

__all__ = ["TextStream", "Tokenizer"]

_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
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
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        bos: int | None,
        eos: int | None,
        end_tokens: Iterable[int] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()  # the library has the parsing of special tokens as a state
        self._decoder = _Decoder.of(tokenizer)
        self._added = tokenizer.get_added_tokens_decoder()
        self._pieces: dict[int, bytes] = {}
        self.vocab_size: int = tokenizer.get_vocab_size()
        self.bos, self.eos = bos, eos
        self.end_tokens = frozenset(end_tokens) | ({eos} if eos is not None else set())
        self.adds_bos = bos is not None and tokenizer.encode("").ids[:1] == [bos]

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
            token. Text of a user should be encoded without.

        Raises
        ------
        UnicodeEncodeError
            If the text has a lone surrogate; it is a ValueError.
        """
        text.encode()
        with self._lock:
            self._tokenizer.encode_special_tokens = not parse_special_tokens
            encoding = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return list(encoding.ids)

    def decode(self, tokens: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of tokens.

        Raises
        ------
        ValueError
            If a token is not in the vocabulary.
        """
        stream = self.stream(skip_special_tokens=skip_special_tokens)
        return "".join([*map(stream.push, tokens), stream.finish()])

    def stream(self, *, skip_special_tokens: bool = True) -> TextStream:
        """Return a decoder that takes one token at a time."""
        return TextStream(self, skip_special_tokens)

    def token(self, token: int) -> str:
        """Return the name of a token, as the vocabulary has it."""
        name = self._tokenizer.id_to_token(token) if 0 <= token < 1 << 32 else None
        if name is None:
            raise ValueError(f"token {token} is not one of the vocabulary of {self.vocab_size}")
        return str(name)

    def __contains__(self, token: int) -> bool:
        """Return whether a token is in the vocabulary; a model's embedding may have more rows."""
        return 0 <= token < 1 << 32 and self._tokenizer.id_to_token(token) is not None

    def is_special(self, token: int) -> bool:
        """Return whether a token stands for no text."""
        added = self._added.get(token)
        return added is not None and added.special

    def piece(self, token: int) -> bytes:
        """Return the bytes that a token stands for, which may be a part of a character."""
        piece = self._pieces.get(token)
        if piece is None:
            name, added = self.token(token), token in self._added
            piece = self._pieces[token] = self._decoder.piece(name, added)
        return piece


class TextStream:
    """Decodes tokens as they come, without ever giving half a character.

    What `push` returned for each token and `finish` at the end is together what `decode` returns
    for all of them.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._strips_space = tokenizer._decoder.strips_space

    def push(self, token: int) -> str:
        """Return the text that is complete with this token; often none of it is this token's."""
        piece = self._tokenizer.piece(token)
        if self._skip_special_tokens and self._tokenizer.is_special(token):
            return ""
        if self._strips_space and piece:
            self._strips_space = False
            piece = piece.removeprefix(b" ")
        return self._utf8.decode(piece)

    def finish(self) -> str:
        """Return what was held back: a replacement character if a character is incomplete."""
        return self._utf8.decode(b"", final=True)


@dataclass(frozen=True)
class _Decoder:
    """How names of tokens become bytes, and whether the first space of a text is dropped."""

    is_byte_level: bool
    strips_space: bool

    @classmethod
    def of(cls, tokenizer: tokenizers.Tokenizer) -> _Decoder:
        """Return that of a tokenizer.

        Raises
        ------
        ValueError
            If it decodes in another way than byte-level BPE and SentencePiece do.
        """
        state = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder else {}
        parts = {part.get("type"): part for part in state.get("decoders", [state])}
        if parts.keys() == {"ByteLevel"}:
            return cls(True, False)
        if parts.keys() == {"Metaspace"}:
            return cls(False, parts["Metaspace"].get("prepend_scheme") != "never")
        replaced = parts.get("Replace", {}).get("pattern"), parts.get("Replace", {}).get("content")
        strip = parts.get("Strip", {"content": " ", "start": 0, "stop": 0})
        if (
            parts.keys() - {"Strip"} == {"Replace", "ByteFallback", "Fuse"}
            and replaced == ({"String": "▁"}, " ")
            and (strip["content"], strip["stop"]) == (" ", 0)
            and strip["start"] in (0, 1)
        ):
            return cls(False, strip["start"] == 1)
        raise ValueError(
            f"the decoder {' + '.join(map(str, parts))} is not supported; supported are ByteLevel, "
            "Metaspace, and Replace + ByteFallback + Fuse (+ Strip)"
        )

    def piece(self, name: str, added: bool) -> bytes:
        """Return the bytes of a token."""
        if not self.is_byte_level:
            match = _BYTE_TOKEN.fullmatch(name)
            return bytes.fromhex(match[1]) if match else name.replace("▁", " ").encode()
        if added or not _BYTE_OF.keys() >= set(name):
            return name.encode()
        return bytes(_BYTE_OF[character] for character in name)

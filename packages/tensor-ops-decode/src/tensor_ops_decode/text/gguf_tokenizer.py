"""Builds the tokenizer that the metadata of a GGUF file describes.

The conventions are llama.cpp's (src/llama-vocab.cpp): `tokenizer.ggml.model` is the algorithm, and
for byte-level BPE `tokenizer.ggml.pre` names the pattern that cuts a text into words first. Gemma 4
has BPE of whole texts, with the spaces and the bytes of SentencePiece.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from tensor_ops_decode.text.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from tensor_ops_decode.text.tokenizer import Tokenizer
from tensor_ops_decode.weights.gguf import GgufFile
from tensor_ops_decode.weights.mapped_file import FileFormatError

__all__ = ["build_from_gguf", "end_tokens_among", "fallback_decoder"]

MAX_TOKEN = 4096  # characters, as ways to cut a token are tried; real ones have under 200
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4  # in tokenizer.ggml.token_type
# Tokens that end a turn or a text, for files that name only one of them as eos. Some files say that
# they are no control tokens, which is an error of old converters.
END_TOKENS = {
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>",
    "<end_of_turn>", "<eos>", "<EOT>", "<|return|>", "<|call|>", "<turn|>", "<|tool_response>",
}  # fmt: skip
# Of models that have these, "<|end|>" ends a message, and an answer may have several.
_ENDS_OF_MESSAGES = frozenset({"<|return|>", "<|call|>"})
# Tokens of Phi 3 after which it does take spaces; the others swallow them, which its
# tokenizer.json says and a GGUF file cannot.
_KEEP_SPACES = {"<unk>", "<s>", "<|endoftext|>"}
_KEY = "tokenizer.ggml."


def build_from_gguf(file: GgufFile) -> Tokenizer:
    """Return the tokenizer of a GGUF file.

    Raises FileFormatError if the file has none, one that is not supported, or one that contradicts
    itself.
    """
    metadata = _TokenizerMetadata(file)
    model = metadata.get("model", str)
    names = metadata.names()
    kinds = metadata.kinds(names)
    if model == "gpt2":
        tokenizer, adds_bos = _byte_level(metadata, names), metadata.pre_tokenizer().adds_bos
        defaults: Mapping[str, int] = {}
    elif model == "llama":
        tokenizer, adds_bos = _sentence_piece(metadata, names, kinds), True
        defaults = {"bos": 1, "eos": 2}
    elif model == "gemma4":
        tokenizer, adds_bos, defaults = _bpe_with_bytes(metadata, names), True, {}
    else:
        raise metadata.error(f"the tokenizer {model!r} is not supported", "gpt2, llama or gemma4")
    is_phi3 = model == "llama" and file.metadata.get("general.architecture") == "phi3"
    # Gemma's runs of spaces are found as what SentencePiece writes for them.
    normalized = model == "llama" and not metadata.get("add_space_prefix", bool, True)
    _add_tokens(tokenizer, names, kinds, swallow_spaces=is_phi3, normalized=normalized)
    token = {
        name: metadata.token(name, names, defaults.get(name)) for name in ("bos", "eos", "eot")
    }
    ending = end_tokens_among(names)
    ends = {i for i, name in enumerate(names) if name in ending}
    # Old files of Gemma 4 say that it adds none.
    adds_bos = model == "gemma4" or metadata.get("add_bos_token", bool, adds_bos)
    before = token["bos"] if adds_bos else None
    after = token["eos"] if metadata.get("add_eos_token", bool, False) else None
    _add_around(tokenizer, before, after)
    ends |= {token["eot"]} if token["eot"] is not None else set()
    return Tokenizer(tokenizer, bos=token["bos"], eos=token["eos"], end_tokens=ends)


def end_tokens_among(names: Collection[str]) -> frozenset[str]:
    """Return which of a tokenizer's tokens end a turn or a text.

    >>> sorted(end_tokens_among(["<|end|>", "<|call|>", "<|return|>", "a"]))
    ['<|call|>', '<|return|>']
    """
    found = END_TOKENS.intersection(names)
    return frozenset(found - {"<|end|>"} if found >= _ENDS_OF_MESSAGES else found)


def _add_around(tokenizer: tokenizers.Tokenizer, before: int | None, after: int | None) -> None:
    """Let a tokenizer add a token before a text, and one after it."""
    first = [(tokenizer.id_to_token(before), before)] if before is not None else []
    last = [(tokenizer.id_to_token(after), after)] if after is not None else []
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*(name for name, _ in first), "$A", *(name for name, _ in last)],
        special_tokens=list(dict(first + last).items()),
    )


class _TokenizerMetadata:
    """The keys of a file that describe its tokenizer, with their types checked."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file

    def error(self, given: str, expected: str) -> FileFormatError:
        return FileFormatError(f"{self._file.path}: {given}; expected {expected}")

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        value = self._file.metadata.get(_KEY + key, default)
        if value is default and default is not None:
            return default
        if not isinstance(value, kind):
            given = "it is missing" if value is None else f"it is {type(value).__name__}"
            raise self.error(f"key {_KEY + key!r}: {given}", kind.__name__)
        return value

    def names(self) -> list[str]:
        """Return the vocabulary; a token without a name gets one, as in llama.cpp."""
        names = [name or f"[EMPTY_{i}]" for i, name in enumerate(self.get("tokens", list))]
        if len(set(names)) < len(names):
            raise self.error(f"key {_KEY + 'tokens'!r}: a token is there twice", "one of each")
        if (longest := max(map(len, names), default=0)) > MAX_TOKEN:
            given = f"key {_KEY + 'tokens'!r}: a token of {longest} characters"
            raise self.error(given, f"at most {MAX_TOKEN}")
        return names

    def kinds(self, names: list[str]) -> list[int]:
        """Return the kind of each token."""
        kinds = self.array("token_type", len(names), [_NORMAL] * len(names))
        return [
            _CONTROL if name in END_TOKENS else kind
            for name, kind in zip(names, kinds, strict=False)
        ]

    def array(self, key: str, length: int, default: list[Any]) -> list[Any]:
        """Return one number for each token."""
        value = self._file.metadata.get(_KEY + key)
        if value is None:
            return default
        if not hasattr(value, "tolist") or len(value) < length:
            raise self.error(f"key {_KEY + key!r}", f"an array of {length} numbers")
        return list(value.tolist())

    def token(self, name: str, names: Sequence[str], default: int | None) -> int | None:
        """Return the number of a token that the file gives a role."""
        key = f"{name}_token_id"
        if default is None and _KEY + key not in self._file.metadata:
            return None
        token = int(self.get(key, int, default))
        if not 0 <= token < len(names):
            raise self.error(f"key {_KEY + key!r}: {token}", f"a token below {len(names)}")
        return token

    def pre_tokenizer(self) -> PreTokenizer:
        name = self.get("pre", str, "")
        if not name:
            raise self.error(
                f"key {_KEY + 'pre'!r}: it is missing, as in files from before May 2024",
                "the name of a pre-tokenizer; convert the model anew",
            )
        if name not in PRE_TOKENIZERS:
            raise self.error(
                f"key {_KEY + 'pre'!r}: {name!r} is not supported", ", ".join(PRE_TOKENIZERS)
            )
        return PRE_TOKENIZERS[name]


def _merges(metadata: _TokenizerMetadata, names: list[str]) -> list[tuple[str, str]]:
    """Return the merges that a file lists, each of two tokens."""
    merges, known = [], frozenset(names)
    for merge in metadata.get("merges", list):
        first, *others = merge.split(" ")
        if len(others) != 1:
            raise metadata.error(f"key {_KEY + 'merges'!r}: {merge!r}", "two tokens")
        if not known >= {first, others[0], first + others[0]}:
            given = f"key {_KEY + 'merges'!r}: {merge!r}"
            raise metadata.error(given, "tokens of the vocabulary that are one together")
        merges.append((first, others[0]))
    return merges


def _byte_level(metadata: _TokenizerMetadata, names: list[str]) -> tokenizers.Tokenizer:
    merges = _merges(metadata, names)
    vocab = {name: i for i, name in enumerate(names)}
    pre_tokenizer = metadata.pre_tokenizer()
    bpe = models.BPE(vocab=vocab, merges=merges, ignore_merges=pre_tokenizer.ignore_merges)
    tokenizer = tokenizers.Tokenizer(bpe)
    if pre_tokenizer.composes:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(
                pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
                for pattern in pre_tokenizer.patterns
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(
    metadata: _TokenizerMetadata, names: list[str], kinds: list[int]
) -> tokenizers.Tokenizer:
    """Return BPE with the merges that the scores imply.

    SentencePiece merges the two neighbours whose union has the best score of the vocabulary; that
    is BPE with every way to make a token as a merge, in the order of the tokens' scores, and of
    those of one token the longest beginning first, as transformers has them. Text never becomes a
    control token or one for a byte, so these have no merges.
    """
    scores = metadata.array("scores", len(names), [0.0] * len(names))
    kept = {name for name, kind in zip(names, kinds, strict=True) if kind == _NORMAL}
    best_first = sorted(range(len(names)), key=lambda i: -scores[i])
    merges = [
        (name[:cut], name[cut:])
        for name in map(names.__getitem__, best_first)
        if name in kept
        for cut in range(len(name) - 1, 0, -1)
        if name[:cut] in kept and name[cut:] in kept
    ]
    unknown = metadata.token("unknown", names, 0)
    adds_space = metadata.get("add_space_prefix", bool, True)
    return _with_bytes(names, merges, unknown, adds_space=adds_space)


def _bpe_with_bytes(metadata: _TokenizerMetadata, names: list[str]) -> tokenizers.Tokenizer:
    """Return BPE with the merges that a file lists, of texts whose spaces are a character.

    llama.cpp cuts a text where lines end, as no token has both an end of a line and others.
    """
    unknown = metadata.token("unknown", names, None)
    return _with_bytes(names, _merges(metadata, names), unknown, adds_space=False)


def _with_bytes(
    names: list[str], merges: list[tuple[str, str]], unknown: int | None, *, adds_space: bool
) -> tokenizers.Tokenizer:
    """Return BPE of whole texts, where a character without a token becomes its bytes."""
    bpe = models.BPE(
        vocab={name: i for i, name in enumerate(names)},
        merges=merges,
        unk_token=names[unknown] if unknown is not None else None,
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = tokenizers.Tokenizer(bpe)
    spaces = normalizers.Replace(" ", "▁")
    before = [normalizers.Prepend("▁")] if adds_space else []
    tokenizer.normalizer = normalizers.Sequence([*before, spaces])
    tokenizer.decoder = fallback_decoder(adds_space)
    return tokenizer


def fallback_decoder(strips_space: bool) -> decoders.Sequence:
    """Return the decoder of SentencePiece's models, some of which add a space before a text."""
    strip = [decoders.Strip(" ", 1, 0)] if strips_space else []
    return decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )


def _add_tokens(
    tokenizer: tokenizers.Tokenizer,
    names: list[str],
    kinds: list[int],
    *,
    swallow_spaces: bool,
    normalized: bool,
) -> None:
    """Let a tokenizer find the tokens that stand for themselves, before it cuts a text."""
    special, others = [], []
    for name, kind in zip(names, kinds, strict=True):
        if kind in (_UNKNOWN, _CONTROL):
            strips = swallow_spaces and name not in _KEEP_SPACES
            token = tokenizers.AddedToken(name, normalized=False, special=True, rstrip=strips)
            special.append(token)
        elif kind == _USER_DEFINED:
            others.append(tokenizers.AddedToken(name, normalized=normalized))
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(others)

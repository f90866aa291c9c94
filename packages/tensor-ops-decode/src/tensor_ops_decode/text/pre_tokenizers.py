"""How byte-level BPE cuts a text into words: the rules that `tokenizer.ggml.pre` names.

A GGUF file has the vocabulary and the merges of a tokenizer, but of its first step only a name,
which llama.cpp's converter chose. The names here are those that files of the supported families
carry. The patterns are those of the models' own ``tokenizer.json``; llama.cpp
(src/llama-vocab.cpp) has some of them rewritten for its own engine of regular expressions.
"""

from dataclasses import dataclass

__all__ = ["PRE_TOKENIZERS", "PreTokenizer"]


@dataclass(frozen=True)
class PreTokenizer:
    """How a text is cut into words before they are merged.

    Attributes
    ----------
    patterns : tuple of str
        Regular expressions; each cuts the pieces that the one before has left.
    ignore_merges : bool
        Whether a word that is in the vocabulary is that token, whatever the merges say.
    adds_bos : bool
        Whether a text begins with the token `bos` unless the file says otherwise.
    composes : bool
        Whether a text is brought into Unicode's normal form C first.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False
    composes: bool = False


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SMOLLM = PreTokenizer((r"\p{N}", _GPT2))
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
# The expressions of OpenAI's cl100k and o200k, each with the length of a number.
_CL100K = (
    _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%(endings)s"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%(endings)s|\p{{N}}%(digits)s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = PreTokenizer((_CL100K % "{1,3}",), ignore_merges=True, adds_bos=True)
_PHI4 = PreTokenizer((_CL100K % "{1,3}",))
_QWEN2 = PreTokenizer((_CL100K % "",), composes=True)

PRE_TOKENIZERS = {
    # llama.cpp does this where a file does not know better.
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": PreTokenizer((_GPT2,)),
    "olmo": PreTokenizer((_GPT2,)),
    "smollm": _SMOLLM,
    "refact": _SMOLLM,  # Granite
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,  # a Llama, as are Smaug and Megrez
    "smaug-bpe": _PHI4,
    "tekken": PreTokenizer(
        (_O200K % {"endings": "", "digits": ""},), ignore_merges=True, adds_bos=True
    ),
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "megrez": PreTokenizer((_CL100K % "",)),
    "dbrx": _PHI4,  # OLMo 2, and Phi 4, which has the expression of DBRX
    "gpt-4o": PreTokenizer(
        (_O200K % {"endings": _ENDINGS + "?", "digits": "{1,3}"},)
    ),  # Phi 4 mini
}

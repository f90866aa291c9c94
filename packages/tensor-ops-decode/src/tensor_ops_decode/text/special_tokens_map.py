"""The special tokens that chat templates know by name, such as ``bos_token``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensor_ops_decode.text.tokenizer import Tokenizer
from tensor_ops_decode.weights.gguf import GgufFile
from tensor_ops_decode.weights.model_file import is_there, read_model_file
from tensor_ops_decode.weights.safetensors import read_json_if_there

__all__ = [
    "CLASS_DEFAULTS",
    "STANDARD",
    "special_token_names",
    "special_token_names_of_gguf",
    "tokenizer_class",
]

#: The names that every model may have, in the order in which transformers adds their tokens.
STANDARD = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
# Defaults of transformers' classes of tokenizers for the names that no file mentions.
CLASS_DEFAULTS = {
    "LlamaTokenizer": {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    "GemmaTokenizer": {
        "unk_token": "<unk>",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
    },
    "Qwen2Tokenizer": dict.fromkeys(("unk_token", "eos_token", "pad_token"), "<|endoftext|>"),
    "GPT2Tokenizer": dict.fromkeys(("unk_token", "bos_token", "eos_token"), "<|endoftext|>"),
}
_OF_THE_FILE = (
    "TokenizersBackend"  # the class without defaults, which takes tokenizer.json as it is
)
# The class for a type of model whose folder names none; for some types whatever it names.
_CLASS_OF_TYPE = {"qwen3": "Qwen2Tokenizer"} | dict.fromkeys(
    ("gemma", "gemma2", "gemma3", "gemma3_text"), "GemmaTokenizer"
)
_ONLY_CLASS_OF_TYPE = {"qwen2": "Qwen2Tokenizer", "mistral": _OF_THE_FILE, "phi3": _OF_THE_FILE}
# GGUF's names, where they are others; the last is spelled so in all files.
_IN_GGUF = {"unk": "unknown", "pad": "padding", "sep": "seperator"}


def special_token_names(folder: Path, pad_token: str | None = None) -> dict[str, str]:
    """Return the special tokens of a Hugging Face folder by the names that templates see.

    They are those of transformers: seven that all models may have, a model's own whose keys end in
    ``_token``, and what an object of ``extra_special_tokens`` names. special_tokens_map.json is
    read where tokenizer_config.json has no ``added_tokens_decoder``, and wins over it then. The
    `pad_token` is what tokenizer.json pads with, which counts where no other file says it.
    """
    config = read_json_if_there(folder / "tokenizer_config.json")
    defaults = CLASS_DEFAULTS.get(tokenizer_class(folder, config), {})
    named = {**defaults, **({"pad_token": pad_token} if pad_token else {}), **config}
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens")
    own = {key: value for key, value in config.items() if _is_own(key) and isinstance(value, str)}
    own = own | _object(extra) or _object(config.get("model_specific_special_tokens"))
    if "added_tokens_decoder" not in config:
        legacy = read_json_if_there(folder / "special_tokens_map.json")
        named |= legacy
        own |= _object(legacy.get("extra_special_tokens"))
    named = {key: value for key, value in named.items() if key.endswith("_token")} | own
    texts = {
        key: value.get("content") if isinstance(value, dict) else value
        for key, value in named.items()
    }
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def special_token_names_of_gguf(file: GgufFile, tokenizer: Tokenizer) -> dict[str, str]:
    """Return the special tokens of a GGUF file likewise, by the tokenizer made from it."""
    tokens = {
        name: file.metadata.get(f"tokenizer.ggml.{_IN_GGUF.get(name, name)}_token_id")
        for name in STANDARD
    }
    tokens |= {"bos": tokenizer.bos, "eos": tokenizer.eos}
    # Files may give a number that is no token for what the model does not have.
    known = {name: t for name, t in tokens.items() if type(t) is int and t in tokenizer}
    return {f"{name}_token": tokenizer.token(token) for name, token in known.items()}


def tokenizer_class(folder: Path, config: Mapping[str, Any]) -> str:
    """Return the name of the class that transformers takes for the tokenizer of a folder."""
    model = read_json_if_there(folder / "config.json")
    kind = str(model.get("model_type"))
    given = config.get("tokenizer_class") or model.get("tokenizer_class")
    named = given.removesuffix("Fast") if isinstance(given, str) else None
    name = _ONLY_CLASS_OF_TYPE.get(kind, named or _CLASS_OF_TYPE.get(kind, _OF_THE_FILE))
    path = folder / "tokenizer.json"
    if name == "LlamaTokenizer" and is_there(path) and b'"ByteLevel"' in read_model_file(path):
        return _OF_THE_FILE  # transformers takes no class of SentencePiece, whatever is named
    return name


def _is_own(key: str) -> bool:
    return key.endswith("_token") and key.removesuffix("_token") not in STANDARD


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

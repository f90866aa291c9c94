"""Opens the tokenizer of a model, whichever kind its files are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers

from tensor_ops_decode.models.generation_settings import end_tokens_of
from tensor_ops_decode.text.added_tokens import add_tokens
from tensor_ops_decode.text.gguf_tokenizer import (
    build_from_gguf,
    end_tokens_among,
    fallback_decoder,
)
from tensor_ops_decode.text.special_tokens_map import special_token_names, tokenizer_class
from tensor_ops_decode.text.tokenizer import MissingTokenizer, Tokenizer, is_of_library
from tensor_ops_decode.weights.gguf import GgufFile
from tensor_ops_decode.weights.model_file import FileFormatError, is_there, read_model_file
from tensor_ops_decode.weights.safetensors import read_json_if_there
from tensor_ops_decode.weights.tensor import Weights

__all__ = ["open_tokenizer"]


def open_tokenizer(weights: Weights) -> Tokenizer:
    """Return the tokenizer of a model; a `MissingTokenizer` if its folder has none.

    Raises FileFormatError if a GGUF file has none, or if there is one that is not supported or
    contradicts itself.
    """
    try:
        if isinstance(weights, GgufFile):
            return build_from_gguf(weights)
        return _from_folder(weights)
    except (FileFormatError, OSError, MemoryError):
        raise
    except BaseException as error:
        if not is_of_library(error):
            raise
        raise FileFormatError(f"{weights.path}: the tokenizer cannot be built: {error}") from error


def _from_folder(weights: Weights) -> Tokenizer:
    folder = Path(weights.path)
    path = folder / "tokenizer.json"
    if not is_there(path):
        return MissingTokenizer(path)
    tokenizer = tokenizers.Tokenizer.from_buffer(read_model_file(path))
    tokenizer.no_truncation()
    config = read_json_if_there(folder / "tokenizer_config.json")
    if tokenizer_class(folder, config) == "LlamaTokenizer":
        _cut_as_llama_tokenizer(tokenizer, config)
    padding = tokenizer.padding
    names = special_token_names(folder, padding["pad_token"] if padding else None)
    add_tokens(tokenizer, folder, names)
    bos, eos = (
        tokenizer.token_to_id(names[key]) if key in names else None
        for key in ("bos_token", "eos_token")
    )
    added = tokenizer.get_added_tokens_decoder()
    special = {i: token.content for i, token in added.items() if token.special}
    ending = end_tokens_among(special.values())
    ends = {i for i, content in special.items() if content in ending}
    return Tokenizer(
        tokenizer,
        bos=bos,
        eos=eos,
        end_tokens=ends | end_tokens_of(weights),
        split_special_tokens=config.get("split_special_tokens") is True,
    )


def _cut_as_llama_tokenizer(tokenizer: tokenizers.Tokenizer, config: Mapping[str, Any]) -> None:
    """Let a tokenizer cut texts as transformers' class LlamaTokenizer does, whatever its file says.

    The class takes vocabulary and merges from the file and has a pipeline of its own. Files of
    Llama 2 write spaces by a normalizer, which also writes one behind each special token.
    """
    adds_space = config.get("add_prefix_space") in (None, True)
    scheme = "always" if config.get("legacy") else "first"
    tokenizer.model.unk_token = None
    tokenizer.model.fuse_unk = tokenizer.model.byte_fallback = True
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        prepend_scheme=scheme if adds_space else "never", split=False
    )
    tokenizer.decoder = fallback_decoder(adds_space)

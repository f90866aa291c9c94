"""Opens the tokenizer of a model, whichever kind its files are."""

from pathlib import Path

import tokenizers

from tensor_ops_decode.models.generation_settings import end_tokens_of
from tensor_ops_decode.text.added_tokens import add_tokens
from tensor_ops_decode.text.gguf_tokenizer import END_TOKENS, build_from_gguf
from tensor_ops_decode.text.special_tokens_map import special_token_names
from tensor_ops_decode.text.tokenizer import MissingTokenizer, Tokenizer, is_of_library
from tensor_ops_decode.weights.gguf import GgufFile
from tensor_ops_decode.weights.model_file import FileFormatError, is_there, read_model_file
from tensor_ops_decode.weights.safetensors import read_json_if_there
from tensor_ops_decode.weights.tensor import Weights

__all__ = ["open_tokenizer"]


def open_tokenizer(weights: Weights) -> Tokenizer:
    """Return the tokenizer of a model; a `MissingTokenizer` if its folder has none.

    Parameters
    ----------
    weights : GgufFile or SafetensorsFolder
        What `open_weights` returned.

    Raises
    ------
    FileFormatError
        If a GGUF file has none, or if there is one that is not supported or contradicts itself.
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
    tokenizer.no_padding()
    config = read_json_if_there(folder / "tokenizer_config.json")
    names = special_token_names(folder)
    add_tokens(tokenizer, folder, names)
    bos, eos = (
        tokenizer.token_to_id(names[key]) if key in names else None
        for key in ("bos_token", "eos_token")
    )
    added = tokenizer.get_added_tokens_decoder()
    ends = {i for i, token in added.items() if token.special and token.content in END_TOKENS}
    return Tokenizer(
        tokenizer,
        bos=bos,
        eos=eos,
        end_tokens=ends | end_tokens_of(weights),
        split_special_tokens=config.get("split_special_tokens") is True,
    )

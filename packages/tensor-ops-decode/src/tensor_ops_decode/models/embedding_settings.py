"""Settings of embeddings in a model's files: how the states of a text's tokens become one vector.

A folder has them as sentence_transformers writes them, a GGUF file as llama.cpp reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FileFormatError, Weights
from tensor_ops_decode.weights.gguf import GgufFile
from tensor_ops_decode.weights.model_file import is_there
from tensor_ops_decode.weights.safetensors import (
    SafetensorsFolder,
    read_json,
    read_json_if_there,
    read_json_list,
)

__all__ = ["EmbeddingSettings", "embedding_settings", "says_how_to_pool"]

_MODULES = "modules.json"
_TRANSFORMER = "sentence_bert_config.json"
_PROMPTS = "config_sentence_transformers.json"
# By the name of sentence_transformers, in a flag and as the value of `pooling_mode`.
_FLAGS = {
    "pooling_mode_lasttoken": "last",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
_MODES = {"lasttoken": "last", "mean": "mean", "cls": "cls", "weightedmean": "weightedmean"}
# By llama.cpp's numbers; 0 is none, and 4 is of rerankers.
_GGUF_POOLING = {1: "mean", 2: "cls", 3: "last"}


@dataclass(frozen=True)
class EmbeddingSettings:
    """What a model's files say about embeddings.

    Attributes
    ----------
    pooling : str or None
        How the states of all tokens become one; None where files say nothing.
    normalize : bool
        Whether an embedding is divided by its length.
    prompts : mapping of str to str
        What may stand before a text, by name.
    default_prompt : str or None
        The name of the one that does by default.
    pools_prompt : bool
        Whether the tokens of a prompt are pooled too.
    """

    pooling: str | None = None
    normalize: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    pools_prompt: bool = True


def says_how_to_pool(weights: Weights) -> bool:
    """Return whether a model's files have settings of embeddings, which are not read yet."""
    if isinstance(weights, GgufFile):
        return bool(weights.metadata.get(_gguf_key(weights)))
    return isinstance(weights, SafetensorsFolder) and is_there(Path(weights.path, _MODULES))


def embedding_settings(weights: Weights, pooling: str | None = None) -> EmbeddingSettings:
    """Return what a model's files say about embeddings, of which `pooling` may stand for theirs.

    A GGUF file has no key about their length; as in llama.cpp, it is 1.

    Raises
    ------
    FileFormatError
        If that cannot be, or is not supported.
    """
    if isinstance(weights, GgufFile):
        return EmbeddingSettings(pooling or _gguf_pooling(weights), normalize=True)
    if isinstance(weights, SafetensorsFolder):
        return _of_folder(Path(weights.path), pooling)
    return EmbeddingSettings(pooling)


def _gguf_key(file: GgufFile) -> str:
    return f"{file.metadata.get('general.architecture')}.pooling_type"


def _gguf_pooling(file: GgufFile) -> str | None:
    key = _gguf_key(file)
    value = file.metadata.get(key, 0)
    if value == 4:
        raise FileFormatError(
            f"{file.path}: {key} is 4, of a reranker; embeddings need a model that pools by 1 "
            "(mean), 2 (cls) or 3 (last)"
        )
    if value not in (0, *_GGUF_POOLING):
        raise FileFormatError(f"{file.path}: {key} must be from 0 to 4, got {value!r:.80}")
    return _GGUF_POOLING.get(value)


def _of_folder(folder: Path, pooling: str | None) -> EmbeddingSettings:
    path = folder / _PROMPTS
    given = ModelSettings(str(path), read_json_if_there(path))
    prompts, default = given.section("prompts").values, given.values.get("default_prompt_name")
    for name, prompt in prompts.items():
        if not isinstance(prompt, str):
            raise FileFormatError(f"{path}: prompts: {name!r} must be a text, got {prompt!r:.80}")
    if default is not None and default not in prompts:
        raise FileFormatError(
            f"{path}: default_prompt_name is {default!r:.80}; the prompts are "
            f"{', '.join(map(repr, prompts)) or 'none'}"
        )
    normalize, pools_prompt = False, True
    if is_there(folder / _MODULES):
        path = folder / _TRANSFORMER
        ModelSettings(str(path), read_json_if_there(path)).require("do_lower_case", False)
        modules = _modules(folder / _MODULES)
        for kind, place in modules:
            if kind == "Pooling" and pooling is None:
                pooling, pools_prompt = _pooling(folder / place / "config.json")
            normalize |= kind == "Normalize"
    return EmbeddingSettings(pooling, normalize, prompts, default, pools_prompt)


def _modules(path: Path) -> list[tuple[str, str]]:
    """Return the class and the folder of each module, in their order."""
    found = []
    for module in read_json_list(path):
        kind, place = (module.get(key) for key in ("type", "path")) if _is(module) else (None, None)
        if not isinstance(kind, str) or not isinstance(place, str):
            raise FileFormatError(
                f"{path}: expected modules with type and path, got {module!r:.80}"
            )
        if Path(place).name != place:  # one with a folder in it could lead anywhere
            raise FileFormatError(f"{path}: path {place!r:.80}; expected a folder beside the file")
        found.append((kind.rpartition(".")[2], place))
    kinds = [kind for kind, _ in found]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise FileFormatError(
            f"{path}: the modules are {', '.join(kinds) or 'none'}; supported are Transformer and "
            "Pooling, with or without Normalize behind them"
        )
    return found


def _is(module: object) -> bool:
    return isinstance(module, Mapping)


def _pooling(path: Path) -> tuple[str, bool]:
    """Return how a module of Pooling pools, and whether tokens of prompts take part."""
    settings = ModelSettings(str(path), read_json(path))
    values = settings.values
    flags = [name for name, value in values.items() if name.startswith("pooling_mode_") and value]
    modes = [_FLAGS.get(flag, flag) for flag in flags]
    if isinstance(mode := values.get("pooling_mode"), str):
        modes = [_MODES.get(mode, mode)]
    if len(modes) != 1 or modes[0] not in _FLAGS.values():
        raise FileFormatError(
            f"{path}: expected one kind of pooling, of {', '.join(_FLAGS)}, got "
            f"{', '.join(flags or modes) or 'none'}; embed() takes another as pooling="
        )
    pools_prompt: Any = values.get("include_prompt", True)
    if not isinstance(pools_prompt, bool):
        raise FileFormatError(
            f"{path}: include_prompt must be true or false, got {pools_prompt!r:.80}"
        )
    return modes[0], pools_prompt

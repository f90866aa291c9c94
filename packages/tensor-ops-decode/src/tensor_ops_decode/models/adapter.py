"""A LoRA adapter as peft saves it: a folder with low-rank pairs for matrices of a model.

Tested by tests/decode/models/test_lora.py.
"""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tensor_ops_decode.models.decoder import Decoder
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.program import Tensor
from tensor_ops_decode.program.adapted import LowRank
from tensor_ops_decode.weights import FileFormatError, Weights
from tensor_ops_decode.weights.adapted import AdaptedWeights
from tensor_ops_decode.weights.model_file import is_there
from tensor_ops_decode.weights.safetensors import open_safetensors, read_json
from tensor_ops_decode.weights.tensor import TensorPlace
from tensor_ops_decode.weights.transforms import type_times

__all__ = ["Adapter", "open_adapter"]

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"

# Settings that matter to training alone, or to which matrices have pairs, which the tensors say.
_IGNORED = {
    "auto_mapping", "base_model_name_or_path", "corda_config", "ensure_weight_tying", "eva_config",
    "exclude_modules", "inference_mode", "layers_pattern", "layers_to_transform", "loftq_config",
    "lora_dropout", "lora_ga_config", "megatron_core", "peft_version", "qalora_group_size",
    "revision", "runtime_config", "target_modules", "task_type",
}  # fmt: skip
_READ = {
    "alpha_pattern", "bias", "init_lora_weights", "lora_alpha", "peft_type", "r", "rank_pattern",
    "use_rslora",
}  # fmt: skip
# Others would have changed the weights of the model too.
_INITIAL = (True, False, "gaussian", "eva", "orthogonal")

_KEY = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_OF_LAYER = re.compile(r"(?:model\.)?layers\.(\d{1,6})\.(.+)")

# Architectures of GGUF files whose matrices have the shapes of transformers', with their names
# there; for some, llama.cpp's converter permutes the rows of queries and keys.
_GGUF_ROLES = {
    "self_attn.q_proj": "q",
    "self_attn.k_proj": "k",
    "self_attn.v_proj": "v",
    "self_attn.o_proj": "o",
    "self_attn.qkv_proj": "qkv",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
    "mlp.gate_up_proj": "gate_up",
}
_PERMUTED = ("llama", "mistral3", "smollm3", "granite")
_GGUF = (*_PERMUTED, "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3", "olmo2")


class Adapter(NamedTuple):
    """Low-rank pairs by the stored tensor of the model that each belongs to.

    `weights` are those of the model with the tensors of the adapter.
    """

    path: str
    pairs: Mapping[str, LowRank]
    weights: AdaptedWeights

    def __str__(self) -> str:
        ranks = sorted({pair.rank for pair in self.pairs.values()})
        words = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
        return f"{self.path}, {len(self.pairs)} matrices of {words}"


class _Pair(NamedTuple):
    """The two tensors of a module; None for one that the file lacks."""

    down: TensorPlace | None = None
    up: TensorPlace | None = None


def open_adapter(path: str | os.PathLike[str], decoder: Decoder, files: Weights) -> Adapter:
    """Open an adapter for a model.

    Raises FileFormatError if it is damaged, does what is not supported, or is not for this model.
    """
    folder = Path(path)
    for name in (CONFIG, TENSORS):
        if not is_there(folder / name):
            raise FileFormatError(f"{folder}: expected {CONFIG} and {TENSORS}, as peft saves them")
    values = {"use_rslora": False, **read_json(folder / CONFIG)}
    settings = ModelSettings(str(folder / CONFIG), values)
    _check(settings)
    tensors, _ = open_safetensors(folder / TENSORS)
    if not tensors:
        raise FileFormatError(f"{folder / TENSORS}: there are no tensors")
    found: dict[str, _Pair] = {}
    for key, place in tensors.items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise FileFormatError(
                f"{folder / TENSORS}: tensor {key!r} is not supported; supported are "
                "base_model.model.*.lora_A.weight and lora_B.weight of linear layers"
            )
        slot = {"A": "down", "B": "up"}[match[2]]
        found[match[1]] = found.get(match[1], _Pair())._replace(**{slot: place})
    pairs = {}
    for module, pair in found.items():
        stored, transform = _place_of(module, decoder, files, str(folder / TENSORS))
        if stored in pairs:
            raise FileFormatError(f"{folder / TENSORS}: two pairs are for {stored!r}")
        pairs[stored] = _low_rank(module, pair, settings, files.header(stored).shape, transform)
    return Adapter(str(folder), pairs, AdaptedWeights(files, tensors))


def _check(settings: ModelSettings) -> None:
    """Raise a FileFormatError for adapters that compute something else than W x + s B (A x)."""
    settings.require("peft_type", "LORA")
    settings.require("bias", "none")
    values = settings.values
    initial = values.get("init_lora_weights", True)
    if not any(type(initial) is type(each) and initial == each for each in _INITIAL):
        raise FileFormatError(
            f"{settings.where}: init_lora_weights is {initial!r:.80}, which changes the weights of "
            "the model too; save the adapter with path_initial_model_for_weight_conversion"
        )
    for name, value in values.items():
        if name not in _IGNORED | _READ and value not in (None, False, {}, []):
            raise FileFormatError(
                f"{settings.where}: {name} is {value!r:.80}, which is not supported; merge the "
                "adapter into the model with peft's merge_and_unload()"
            )


def _place_of(
    module: str, decoder: Decoder, files: Weights, where: str
) -> tuple[str, tuple[str, ...]]:
    """Return the stored tensor of a module, and what is done to the rows of its matrices there."""
    known = frozenset(files.names)
    architecture = files.metadata.get("general.architecture")
    names = [f"{module}.weight", f"{module.removeprefix('model.')}.weight"]
    transform: tuple[str, ...] = ()
    if architecture is not None:
        if architecture not in _GGUF:
            raise FileFormatError(
                f"{where}: adapters beside GGUF files are supported for {', '.join(_GGUF)}, and "
                f"not for {architecture!r:.80}; open the Hugging Face folder of the model"
            )
        names = [_gguf_name(module, decoder)]
        if architecture in _PERMUTED and module.endswith((".q_proj", ".k_proj")):
            transform = (f"interleave_rows:{decoder.head_size}",)
    for name in names:
        if name in known:
            return name, transform
    raise FileFormatError(
        f"{where}: there is a pair for {module!r:.200}, but {files.path} has no tensor "
        f"{names[0]!r:.200}; is the adapter for another model?"
    )


def _gguf_name(module: str, decoder: Decoder) -> str:
    names = decoder.names
    if module == "lm_head" and not decoder.is_tied:
        return f"{names['head']}.weight"
    match = _OF_LAYER.fullmatch(module)
    role = _GGUF_ROLES.get(match[2], "") if match else ""
    if match is None or role not in names:
        return f"{module}.weight"  # which is in no such file
    return f"{names['layer'].format(int(match[1]))}{names[role]}.weight"


def _low_rank(
    module: str,
    pair: _Pair,
    settings: ModelSettings,
    shape: tuple[int, ...],
    transform: tuple[str, ...],
) -> LowRank:
    """Return the pair of a matrix of this shape, checked."""
    down, up = pair
    if down is None or up is None:
        place = down or up
        assert place is not None
        missing = "lora_B" if up is None else "lora_A"
        raise FileFormatError(f"{place.file.path}: {missing}.weight of {module!r} is missing")
    rank = _number_of("rank_pattern", "r", module, settings)
    alpha = _number_of("alpha_pattern", "lora_alpha", module, settings)
    expected = {down: (rank, *shape[1:]), up: (*shape[:1], rank)}
    for place, wanted in expected.items():
        if len(shape) != 2 or place.shape != wanted:
            raise FileFormatError(
                f"{place.file.path}: {place.what} has shape {place.shape}, expected {wanted} for a "
                f"matrix of shape {shape}"
            )
    root = settings.flag("use_rslora")
    factor = alpha / (math.sqrt(rank) if root else rank)
    of_up = up.header().type
    if factor != 1:
        transform = (f"times:{factor!r}", *transform)
        of_up = type_times(of_up, factor)
    return LowRank(
        Tensor(down.header().type, down.shape, _source(down, ())),
        Tensor(of_up, up.shape, _source(up, transform)),
    )


def _source(place: TensorPlace, transform: tuple[str, ...]) -> dict[str, Any]:
    return {"file": place.file.path, "tensor": place.name, "transform": list(transform)}


def _number_of(patterns: str, default: str, module: str, settings: ModelSettings) -> Any:
    """Return the rank or alpha of a module: that of the first pattern that matches, as in peft."""
    given = settings.section(patterns)
    for pattern in given.values:
        try:
            is_match = re.match(rf"(.*\.)?({pattern})$", module)
        except (re.error, OverflowError, RecursionError) as error:
            raise FileFormatError(
                f"{given.where}: {patterns} has {pattern!r:.80}: {error}"
            ) from None
        if is_match:
            return _read(given, pattern, patterns)
    return _read(settings, default, default)


def _read(settings: ModelSettings, name: str, what: str) -> Any:
    return settings.size(name) if what in ("r", "rank_pattern") else settings.number(name)

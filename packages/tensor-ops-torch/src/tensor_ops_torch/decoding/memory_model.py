"""A model in memory as the decode engine takes it: what it says of itself, and its tensors."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from tensor_ops_torch.decoding.errors import UnsupportedModelError
from tensor_ops_torch.decoding.named_modules import NamedModule, Weight

if TYPE_CHECKING:
    from tensor_ops_decode import ArrayWeights

__all__ = ["array_weights", "check_devices", "check_values"]

_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def array_weights(model: Any, weights: Mapping[str, Weight], *, release: bool) -> ArrayWeights:
    """Return a model for a kernel.

    With `release` each weight is taken from the model once an array was made of it. Raises
    FileFormatError if a tensor is of a dtype that kernels do not run.
    """
    from tensor_ops_decode import ArrayWeights, DeferredArray

    config = json.loads(model.config.to_json_string())
    config.pop("quantization_config", None)  # whose weights have other classes or dtypes
    config["architectures"] = [type(model).__name__]
    config["tie_word_embeddings"] = _is_tied(weights)
    names = [name for name in weights if not (name == _HEAD and config["tie_word_embeddings"])]
    generation_config = getattr(model, "generation_config", None)
    return ArrayWeights(
        config,
        {
            name: DeferredArray(
                tuple(weight.parameter.shape),
                str(weight.parameter.dtype).rpartition(".")[2],
                _maker_of(weight),
            )
            for name, weight in ((name, weights[name]) for name in names)
        },
        generation_config=None if generation_config is None else generation_config.to_dict(),
        name=f"the {type(model).__name__} in memory",
        release=_releasing(weights, names) if release else None,
        activations=_rounded_to(weights),
    )


def check_values(weights: Mapping[str, Weight]) -> None:
    """Raise an UnsupportedModelError unless all weights are plain tensors with values."""
    for name, weight in weights.items():
        tensor = weight.parameter.data
        if type(tensor) is not torch.Tensor:
            kind = f"{type(tensor).__module__}.{type(tensor).__name__}"
            raise UnsupportedModelError(
                f"{name} is a {kind}, which may be spread over processes or quantized: expected a "
                "torch.Tensor; load the model without that, and give quantize= for fewer bits"
            )
        if tensor.device.type == "meta":
            raise UnsupportedModelError(
                f"{name} is on the device meta, without values: load the model again, as a whole "
                "into memory. A decoder with release=True has taken them, or accelerate keeps "
                "them elsewhere"
            )


def check_devices(weights: Mapping[str, Weight], backend: str) -> None:
    """Raise an UnsupportedModelError unless the kernel's backend computes where the weights are."""
    own = "cuda" if backend.partition(":")[0] == "cuda" else "cpu"
    for name, weight in weights.items():
        device = weight.parameter.device
        if device.type not in ("cpu", own):
            raise UnsupportedModelError(
                f"{name} is on {device}, where the backend {backend!r} does not compute: move the "
                f"model, by model.to({own!r}), or install a backend that runs programs on "
                f"{device.type}"
            )


def _maker_of(weight: Weight) -> Callable[[], torch.Tensor]:
    """Return what makes the array of a weight, without keeping its model in memory."""
    owner = weight.owner
    held = [None if each is None else weakref.ref(each) for each in (owner.module, owner.layer)]
    name, adapters, attribute, full_name = owner.name, owner.adapters, weight.attribute, weight.name

    def make() -> torch.Tensor:
        module, layer = (each and each() for each in held)
        if module is None:
            raise RuntimeError(
                f"{full_name} is gone with its model: pack or export it while the model is there"
            )
        return Weight(NamedModule(name, module, layer, adapters), attribute).array()

    return make


def _is_tied(weights: Mapping[str, Weight]) -> bool:
    """Return whether the head is the embedding, which adapters of either of them prevent."""
    if _HEAD not in weights or _EMBEDDING not in weights:
        return False
    head, embedding = weights[_HEAD], weights[_EMBEDDING]
    is_merged = head.owner.adapters or embedding.owner.adapters
    return head.parameter is embedding.parameter and not is_merged


def _rounded_to(weights: Mapping[str, Weight]) -> str | None:
    """Return the dtype to which PyTorch rounds every activation of a model, if a kernel may too.

    Float16 is none: kernels have no products with such activations.
    """
    dtypes = {weight.parameter.dtype for weight in weights.values()}
    return "bfloat16" if dtypes == {torch.bfloat16} else None


def _releasing(weights: Mapping[str, Weight], names: list[str]) -> Callable[[str], None]:
    """Return the function that takes a weight from the model, under all of its names.

    That is done once an array was made under each of `names` that it has.
    """
    twins: dict[int, list[str]] = {}
    for name, weight in weights.items():
        twins.setdefault(id(weight.parameter), []).append(name)
    groups = {name: group for group in twins.values() for name in group}
    waiting = set(names)

    def release(name: str) -> None:
        waiting.discard(name)
        if waiting.isdisjoint(groups[name]):
            empty = weights[name].without_memory()
            for twin in groups[name]:
                weights[twin].replace(empty)

    return release

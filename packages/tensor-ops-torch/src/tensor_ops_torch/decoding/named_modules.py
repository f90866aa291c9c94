"""The modules and the weights of a model by the names that its files have, without adapters.

A model that peft has changed has layers around the model's own, which are looked through: what is
found under a name is the model's own layer, beside the adapters that are yet to be merged into it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tensor_ops_torch.decoding.errors import UnsupportedModelError

__all__ = ["NamedModule", "Weight", "named_modules_of", "stored_buffers", "weights_of"]

_MERGE = "merge them first, by merge_and_unload(), or give merge=True"


@dataclass(frozen=True)
class NamedModule:
    """A module of a model, with its name in the model without adapters."""

    name: str
    # The model's own module, also where it is within the layer of an adapter.
    module: torch.nn.Module
    # That layer of peft, None where there is none, and the adapters that are yet to be merged.
    layer: Any = None
    adapters: tuple[str, ...] = ()

    def merged(self) -> torch.nn.Module:
        """Return the module with its adapters merged, as peft merges them; the model's stays."""
        if not self.adapters:
            return self.module
        layer = copy.deepcopy(self.layer)
        try:
            layer.merge(adapter_names=list(self.adapters))
        except (RuntimeError, ValueError, NotImplementedError) as error:
            raise UnsupportedModelError(
                f"peft cannot merge the adapters of {self.name}, {', '.join(self.adapters)}: "
                f"{error}"
            ) from error
        merged: torch.nn.Module = layer.get_base_layer()
        return merged


@dataclass(frozen=True)
class Weight:
    """A parameter of a module, or a buffer that files have too, by its name in it."""

    owner: NamedModule
    attribute: str

    @property
    def name(self) -> str:
        """Its name in the files of the model."""
        return f"{self.owner.name}.{self.attribute}".lstrip(".")

    @property
    def parameter(self) -> torch.Tensor:
        """The parameter, without what adapters add to it."""
        parameter: torch.Tensor = getattr(self.owner.module, self.attribute)
        return parameter

    def array(self) -> torch.Tensor:
        """Return its values, adapters merged, as a contiguous tensor on the host.

        That is the parameter's own memory unless one of these takes a copy.
        """
        parameter: torch.Tensor = getattr(self.owner.merged(), self.attribute)
        return parameter.detach().to("cpu").contiguous()

    def without_memory(self) -> torch.Tensor:
        """Return a parameter of the same shape and dtype without values."""
        found = self.parameter
        empty = torch.empty_like(found, device="meta")
        if not isinstance(found, torch.nn.Parameter):
            return empty
        return torch.nn.Parameter(empty, requires_grad=found.requires_grad)

    def replace(self, parameter: torch.Tensor) -> None:
        """Put another parameter into the model in its place."""
        setattr(self.owner.module, self.attribute, parameter)


def named_modules_of(model: torch.nn.Module, *, merge: bool) -> list[NamedModule]:
    """Return the modules of a model as transformers makes it, or as peft has changed it in place.

    Raises UnsupportedModelError if adapters are not merged and cannot be, or may not be left to be
    merged, as `merge` says.
    """
    return list(_named_modules(model, "", merge))


def weights_of(modules: list[NamedModule]) -> dict[str, Weight]:
    """Return the weights of a model by their names; each under all of its names."""
    found = [
        Weight(named, attribute) for named in modules for attribute in _attributes(named.module)
    ]
    return {weight.name: weight for weight in found}


def _attributes(module: torch.nn.Module) -> list[str]:
    found = [name for name, parameter in module._parameters.items() if parameter is not None]
    return found + stored_buffers(module)


def stored_buffers(module: torch.nn.Module) -> list[str]:
    """Return the buffers of floating-point numbers that files have beside the parameters."""
    left_out = module._non_persistent_buffers_set
    return [
        name
        for name, buffer in module._buffers.items()
        if buffer is not None and buffer.is_floating_point() and name not in left_out
    ]


def _named_modules(module: Any, name: str, merge: bool) -> Iterator[NamedModule]:
    if _is_from_peft(module):
        if hasattr(module, "modules_to_save"):
            yield from _named_modules(_saved(module, name), name, merge)
            return
        yield _adapted(module, name, merge)
        return
    yield NamedModule(name, module)
    for child, found in module.named_children():
        yield from _named_modules(found, f"{name}.{child}".lstrip("."), merge)


def _is_from_peft(module: object) -> bool:
    return any(each.__module__.partition(".")[0] == "peft" for each in type(module).__mro__)


def _adapted(layer: Any, name: str, merge: bool) -> NamedModule:
    """Return the module in a layer of an adapter."""
    kind = f"{type(layer).__module__}.{type(layer).__name__}"
    if not all(hasattr(layer, each) for each in ("get_base_layer", "merged_adapters", "merge")):
        raise UnsupportedModelError(f"{name} is {kind} of peft, which cannot be merged")
    active = [] if layer.disable_adapters else list(layer.active_adapters)
    present = [each for each in active if _has(layer, each)]
    merged = list(layer.merged_adapters)
    if not set(merged) <= set(present):
        raise UnsupportedModelError(
            f"{name} has merged adapters that are not active, {', '.join(merged)}: a call of the "
            "model would take them out again; call unmerge_adapter() first"
        )
    pending = tuple(each for each in present if each not in merged)
    if pending and not merge:
        raise UnsupportedModelError(
            f"{name} has adapters that are not merged, {', '.join(pending)}: {_MERGE}"
        )
    base = layer.get_base_layer()
    for each in pending:
        if getattr(layer, "lora_bias", {}).get(each) and base.bias is None:
            raise UnsupportedModelError(
                f"{name} has no bias, and its adapter {each!r} has one (lora_bias=True), which "
                "peft cannot merge: train the adapter without it"
            )
    return NamedModule(name, base, layer, pending)


def _has(layer: Any, adapter: str) -> bool:
    """Return whether an adapter has weights for a layer."""
    held = [getattr(layer, each, {}) for each in layer.adapter_layer_names]
    return any(adapter in each for each in held)


def _saved(wrapper: Any, name: str) -> torch.nn.Module:
    """Return the module that an adapter has in place of the model's own, or that."""
    active = [] if wrapper.disable_adapters else list(wrapper.active_adapters)
    found = [each for each in active if each in wrapper.modules_to_save]
    if len(found) > 1:
        raise UnsupportedModelError(
            f"{name} has a module of each of the adapters {', '.join(found)}: activate one of them"
        )
    chosen: torch.nn.Module = (
        wrapper.modules_to_save[found[0]] if found else wrapper.original_module
    )
    return chosen

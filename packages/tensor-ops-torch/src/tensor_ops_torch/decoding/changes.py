"""Whether the weights of a model are still those that a decoder was made from.

PyTorch counts what is written to a tensor in ``Tensor._version``. What goes through ``.data`` is
not counted, nor what another library writes to the same memory, so that neither is noticed.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from tensor_ops_torch.decoding.errors import WeightsChangedError
from tensor_ops_torch.decoding.parts import Part, Weight
from tensor_ops_torch.pytorch import torch

__all__ = ["WeightState"]

_ADVICE = "make the decoder again, by tensor_ops_torch.decoder(model)"


class WeightState:
    """What modules and weights a model had, without holding any of them.

    Parameters
    ----------
    model : Module
        As the caller holds it.
    parts : list of Part
    weights : list of Weight
    """

    def __init__(self, model: torch.nn.Module, parts: list[Part], weights: list[Weight]) -> None:
        self._children = [
            (weakref.ref(parent), name, weakref.ref(child))
            for parent in model.modules()
            for name, child in parent._modules.items()
            if child is not None
        ]
        self._adapters = [
            (weakref.ref(part.layer), part.name, _adapters_of(part.layer))
            for part in parts
            if part.layer is not None
        ]
        self._tensors = [
            (weakref.ref(owner), attribute, name, weakref.ref(tensor), _state_of(tensor))
            for owner, attribute, name, tensor in _tensors(parts, weights)
        ]

    def check(self) -> None:
        """Raise a WeightsChangedError if a weight, a module or an adapter is another one now."""
        for parent, name, child in self._children:
            owner = parent()
            if owner is not None and owner._modules.get(name) is not child():
                raise WeightsChangedError(
                    f"the module {name!r} of a {type(owner).__name__} was replaced after the "
                    f"decoder was made; {_ADVICE}"
                )
        for layer, name, state in self._adapters:
            found = layer()
            if found is not None and _adapters_of(found) != state:
                raise WeightsChangedError(
                    f"the adapters of {name} were merged, unmerged or activated after the decoder "
                    f"was made; {_ADVICE}"
                )
        for module, attribute, name, tensor, before in self._tensors:
            holder = module()
            if holder is None:
                continue
            now = holder._parameters.get(attribute)
            if now is None or now is not tensor():
                problem = "was replaced"
            elif (state := _state_of(now)) != before:
                problem = "was written to" if state[1:] == before[1:] else "has other memory"
            else:
                continue
            raise WeightsChangedError(
                f"the weight {name} {problem} after the decoder was made, which computes with what "
                f"it was; {_ADVICE}"
            )


def _tensors(
    parts: list[Part], weights: list[Weight]
) -> Iterator[tuple[torch.nn.Module, str, str, torch.Tensor]]:
    """Give the parameters that weights are made from: module, name in it, name, and parameter."""
    for weight in weights:
        yield weight.part.module, weight.attribute, weight.name, weight.parameter
    for part in parts:
        if not part.adapters:
            continue
        for prefix, module in part.layer.named_modules():
            if module is part.module:
                continue
            for attribute, parameter in module._parameters.items():
                if parameter is not None:
                    name = f"{part.name}.{prefix}.{attribute}"
                    yield module, attribute, name, parameter


def _state_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    # Tensors that were made in inference mode count nothing.
    version = None if tensor.is_inference() else tensor._version
    return version, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape)


def _adapters_of(layer: Any) -> tuple[Any, ...]:
    return (
        tuple(layer.merged_adapters),
        tuple(layer.active_adapters),
        bool(layer.disable_adapters),
    )

"""Models and data brought to a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["MovingLoader", "map_tensors", "move_model"]


def move_model(model: nn.Module, device: torch.device, dtype: torch.dtype | None) -> nn.Module:
    """Move a model in place, floating-point parameters to a dtype too, and return it.

    Parameters that modules share stay shared. ``Module.to`` alone separates them where it has to
    make new parameters, as on XLA devices.
    """
    shared = _shared_parameters(model)
    model.to(device=device, dtype=dtype)
    for (owner, name), *others in shared:
        for module, other in others:
            setattr(module, other, getattr(owner, name))
    return model


def _shared_parameters(model: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            places.setdefault(id(parameter), []).append((module, name))
    return [each for each in places.values() if len(each) > 1]


def map_tensors(data: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return data with a function applied to each tensor in its dicts, lists and tuples."""
    if isinstance(data, Tensor):
        return function(data)
    if isinstance(data, Mapping):
        mapped = {key: map_tensors(value, function) for key, value in data.items()}
        if type(data) is dict:
            return mapped
        try:
            return type(data)(mapped)  # type: ignore[call-arg]
        except TypeError as error:
            raise TypeError(
                f"prepare_data: cannot make a {type(data).__name__} from a dict ({error}); "
                "give it as a dict"
            ) from error
    if isinstance(data, nn.utils.rnn.PackedSequence):
        # Its batch sizes are on the CPU wherever the rest is.
        indices = (map_tensors(each, function) for each in data[2:])
        return nn.utils.rnn.PackedSequence(function(data.data), data.batch_sizes, *indices)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(map_tensors(each, function) for each in data))
    if isinstance(data, (list, tuple)):
        return type(data)(map_tensors(each, function) for each in data)
    return data


class MovingLoader:
    """A ``DataLoader`` whose batches are on the device."""

    def __init__(self, loader: Any, move: Callable[[Any], Any]) -> None:
        self.loader, self._move = loader, move

    def __iter__(self) -> Iterator[Any]:
        return map(self._move, self.loader)

    def __len__(self) -> int:
        return len(self.loader)

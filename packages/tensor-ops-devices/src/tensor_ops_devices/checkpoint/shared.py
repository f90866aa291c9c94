"""Tensors that have several names: in a model, in a file, or in both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["differing_names", "memory_of", "tied_names"]


def differing_names(model: nn.Module, state: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return two names of one tensor of a model for which a state dict has different values.

    Both would be written to the same memory, where the last one stays. Values are the same if all
    their bits are, those of NaNs too; of different dtypes, if they are in the dtype of the model.
    `state` has the names of the model.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    >>> model[1].weight = model[0].weight
    >>> differing_names(model, {"0.weight": torch.zeros(2, 2), "1.weight": torch.ones(2, 2)})
    ('0.weight', '1.weight')
    """
    first: dict[Any, str] = {}
    for name, own in model.state_dict(keep_vars=True).items():
        value = state.get(name)
        if not isinstance(own, Tensor) or nn.parameter.is_lazy(own):
            continue
        # A value of another shape is an error of its own, or for the module to convert.
        if not isinstance(value, Tensor) or value.shape != own.shape:
            continue
        other = first.setdefault(memory_of(own), name)
        if not _are_same(state[other], value, own.dtype):
            return other, name
    return None


def tied_names(model: nn.Module, state: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return two names of one tensor of a state dict that are two tensors of a model.

    `state` has the names of the model.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    >>> weight = torch.zeros(2, 2)
    >>> tied_names(model, {"0.weight": weight, "1.weight": weight})
    ('0.weight', '1.weight')
    """
    first: dict[Any, str] = {}
    own = model.state_dict(keep_vars=True)
    for name, value in state.items():
        if not isinstance(value, Tensor) or not isinstance(own.get(name), Tensor):
            continue
        other = first.setdefault(memory_of(value), name)
        if own[other] is not own[name] and memory_of(own[other]) != memory_of(own[name]):
            return other, name
    return None


def memory_of(tensor: Tensor) -> Any:
    """Return a key that is equal for tensors that share their memory."""
    is_plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided
    if not is_plain or tensor.is_meta or not tensor.numel():
        return id(tensor)
    return tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _are_same(one: Tensor, other: Tensor, dtype: torch.dtype) -> bool:
    if one is other:
        return True
    if one.dtype is not other.dtype:
        one, other = one.to(dtype), other.to(dtype)
    if one.layout is not torch.strided or one.is_quantized or other.layout is not one.layout:
        return torch.equal(one, other)
    bits = (each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
    return torch.equal(*bits)

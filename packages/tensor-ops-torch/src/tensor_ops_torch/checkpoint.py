"""Checkpoints that any backend loads, whichever has saved them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["load_checkpoint", "save_checkpoint"]

# What the key of a state dict begins with in a model made by torch.compile.
_COMPILED = "_orig_mod."


def save_checkpoint(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Save the parameters and buffers of a model, brought to the CPU first.

    Parameters
    ----------
    model : torch.nn.Module
        On any device.
    path : path
        ``.safetensors`` is written with the package safetensors, anything else with ``torch.save``.

    Examples
    --------
    >>> import tempfile, torch
    >>> from tensor_ops_torch.checkpoint import load_checkpoint, save_checkpoint
    >>> model, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_checkpoint(model, folder + "/model.pt")
    ...     load_checkpoint(other, folder + "/model.pt")
    >>> torch.equal(model.weight, other.weight)
    True
    """
    state = _plain(model).state_dict()
    if not _is_safetensors(path):
        torch.save({key: _on_host(value) for key, value in state.items()}, path)
        return
    first = _first_names(model)
    # The format has each memory once: names that share a tensor are left to those of the model.
    tensors = {
        key: _on_host(value).contiguous()
        for key, value in state.items()
        if first.get(key, key) == key
    }
    _safetensors(path).save_file(tensors, path, metadata={"format": "pt"})


def load_checkpoint(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Load what `save_checkpoint` or ``torch.save(model.state_dict())`` has saved, in place.

    Device and dtype of the model stay as they are.

    Parameters
    ----------
    model : torch.nn.Module
        With the same parameters as the one that was saved, on any device.
    path : path

    Raises
    ------
    RuntimeError
        If names or shapes are not those of the model, with their list.
    """
    if _is_safetensors(path):
        state: dict[str, Any] = _safetensors(path).load_file(path)
        for key, name in _first_names(model).items():
            if key not in state and name in state:
                state[key] = state[name]
    else:
        state = torch.load(path, map_location="cpu", weights_only=True)
    _plain(model).load_state_dict(
        {key.removeprefix(_COMPILED): each for key, each in state.items()}
    )


def _plain(model: nn.Module) -> nn.Module:
    """Return the model that ``torch.compile`` has wrapped, or the model."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model


def _first_names(model: nn.Module) -> dict[str, str]:
    """Return, for each name of a parameter or buffer, the first name that the same one has."""
    first: dict[int, str] = {}
    state = _plain(model).state_dict(keep_vars=True)
    return {
        key: first.setdefault(id(value), key)
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def _on_host(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, Tensor) else value


def _is_safetensors(path: str | os.PathLike[str]) -> bool:
    return Path(path).suffix == ".safetensors"


def _safetensors(path: str | os.PathLike[str]) -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise ImportError(
            f"{os.fspath(path)!r} takes the package safetensors; pip install safetensors, or "
            "choose another suffix for PyTorch's own format"
        ) from error
    return safetensors.torch

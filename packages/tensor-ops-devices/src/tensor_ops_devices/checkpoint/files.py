"""Saving models to files, and loading them."""

from __future__ import annotations

import errno
import os
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tensor_ops.extension import WrongFileError, open_regular, whole_file
from tensor_ops_devices.backends.moving import map_tensors
from tensor_ops_devices.checkpoint.names import ModelNames
from tensor_ops_devices.checkpoint.shared import differing_names, tied_names

__all__ = ["load_checkpoint", "save_checkpoint"]

_MODEL = "model_state_dict"
# A file that holds more than the state dict has it under one of these: as PyTorch's tutorials and
# guides write it, then Lightning and torchvision.
_MODEL_KEYS = (_MODEL, "state_dict", "model")


def save_checkpoint(
    model: nn.Module, path: str | os.PathLike[str], extra: Mapping[str, Any] | None = None
) -> None:
    """Save the parameters and buffers of a model, brought to the CPU first.

    The file is replaced as a whole: where saving fails or is interrupted, the old one stays. Until
    it is done, the disk has both.

    Parameters
    ----------
    model : torch.nn.Module
        On any device. Names are those of the model itself, without what ``torch.compile``,
        ``DataParallel`` and ``DistributedDataParallel`` put before them.
    path : path
        ``.safetensors`` is written with the package safetensors, anything else with ``torch.save``.
    extra : mapping, optional
        What else belongs to the checkpoint, as the state of an optimizer: tensors, numbers, strings
        and containers of them. The model is ``"model_state_dict"`` beside it then. ``torch.save``
        only.

    Raises
    ------
    TypeError
        If something cannot be saved so that `load_checkpoint` loads it.
    ValueError
        If `extra` is given for safetensors, or has a key of the model's.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile, torch
    >>> from tensor_ops_devices.checkpoint import load_checkpoint, save_checkpoint
    >>> model, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_checkpoint(model, folder + "/model.pt", extra={"epoch": 3})
    ...     print(load_checkpoint(other, folder + "/model.pt"))
    {'epoch': 3}
    >>> torch.equal(model.weight, other.weight)
    True
    """
    _check(model, "save_checkpoint")
    if extra is not None:
        _check_extra(extra, path)
    if os.path.isfile(path) and not os.access(path, os.W_OK):
        # To replace a file asks for its folder only.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    state = _state_on_host(model)
    if _is_safetensors(path):
        _save_safetensors(model, state, path)
        return
    content: Any = state
    if extra is not None:
        content = {_MODEL: state, **map_tensors(dict(extra), lambda each: each.detach().cpu())}
    with whole_file(path) as new:
        try:
            with open(new, "wb") as file:
                torch.save(content, file)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(f"save_checkpoint: {error}; {_ALLOWED}") from error
        except RuntimeError as error:
            # The writer of PyTorch fails once more when it closes what could not be written.
            cause = error.__context__
            if isinstance(cause, OSError):
                raise OSError(cause.errno, cause.strerror, os.fspath(path)) from None
            raise
        if extra or not all(isinstance(each, Tensor) for each in state.values()):
            _check_loads(new)


def load_checkpoint(model: nn.Module, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Load what `save_checkpoint` or ``torch.save`` has saved of a model, in place.

    Device and dtype of the model stay as they are, and no code in the file is run. In the file, in
    the model or in both, names may have what ``torch.compile``, ``DataParallel`` and
    ``DistributedDataParallel`` put before them.

    Parameters
    ----------
    model : torch.nn.Module
        With the same parameters as the one that was saved, on any device.
    path : path
        Of a state dict, or of a dict that has one as ``"model_state_dict"``, ``"state_dict"`` or
        ``"model"``.

    Returns
    -------
    dict
        What the file holds besides, on the CPU: the `extra` of `save_checkpoint`, such as
        ``"optimizer_state_dict"`` for ``optimizer.load_state_dict``. Empty if there is nothing.

    Raises
    ------
    RuntimeError
        If names or shapes are not those of the model, with their list, if the file has different
        tensors for one that the model has under several names or one for different ones, or if it
        is damaged or no file of tensors, as a pointer of git LFS. Nothing is changed then.
    TypeError
        If the file holds no state dict.
    pickle.UnpicklingError
        If the file cannot be loaded without running code in it.
    """
    _check(model, "load_checkpoint")
    content = _read(path)
    state, extra = _split(content, path)
    of_the_model = ModelNames(model).of_the_model(state)
    _check_shared(model, of_the_model, path)
    _load(model, of_the_model, path)
    return extra


def _check(model: Any, caller: str) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"{caller}: model is a {type(model).__name__}, expected a torch.nn.Module")


def _check_extra(extra: Any, path: str | os.PathLike[str]) -> None:
    if not isinstance(extra, Mapping):
        raise TypeError(
            f"save_checkpoint: extra is a {type(extra).__name__}, expected a dict, as "
            '{"optimizer_state_dict": optimizer.state_dict()}'
        )
    if taken := [key for key in _MODEL_KEYS if key in extra]:
        raise ValueError(
            f"save_checkpoint: extra has {taken[0]!r}, which is where the model goes; choose "
            "another key"
        )
    if _is_safetensors(path):
        raise ValueError(
            f"save_checkpoint: {os.fspath(path)!r} can hold tensors of the model only, and extra "
            "is given; choose another suffix, as .pt"
        )


def _state_on_host(model: nn.Module) -> OrderedDict[str, Any]:
    """Return the state dict with the names of the model itself and tensors on the CPU."""
    state = model.state_dict(keep_vars=True)  # the tensors themselves, to know the shared ones
    plain = ModelNames(model).plain
    on_host: dict[int, Tensor] = {}
    result: OrderedDict[str, Any] = OrderedDict()
    for key, value in state.items():
        if not isinstance(value, Tensor):
            result[plain(key)] = value
            continue
        if hasattr(value, "full_tensor"):
            raise TypeError(
                f"save_checkpoint: {key} is sharded over processes; save it with "
                "torch.distributed.checkpoint, or gather it with full_tensor() before"
            )
        if nn.parameter.is_lazy(value):
            raise TypeError(
                f"save_checkpoint: {key} is not initialized; call the model once before it is saved"
            )
        if value.is_meta:
            raise TypeError(f"save_checkpoint: {key} is on the meta device, which holds no values")
        if id(value) not in on_host:
            on_host[id(value)] = value.detach().cpu()
        result[plain(key)] = on_host[id(value)]
    # The versions of the modules, by which newer ones know how to read older files.
    versions = getattr(state, "_metadata", {})
    result._metadata = OrderedDict(  # type: ignore[attr-defined]
        (plain(key), value) for key, value in versions.items()
    )
    return result


def _save_safetensors(
    model: nn.Module, state: Mapping[str, Any], path: str | os.PathLike[str]
) -> None:
    library = _safetensors(path)
    first = ModelNames(model).first_names
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for key, value in state.items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"save_checkpoint: {key} is a {type(value).__name__}, and safetensors holds "
                "tensors only; choose another suffix, as .pt"
            )
        # The format has each memory once: names that share a tensor are left to those of the model.
        if first.get(key, key) != key:
            continue
        tensors[key] = value.contiguous()
        memory = tensors[key].untyped_storage().data_ptr()
        if memory in seen:  # a view into the memory of another one
            tensors[key] = tensors[key].clone()
        seen.add(memory)
    with whole_file(path) as new:
        try:
            library.torch.save_file(tensors, new, metadata={"format": "pt"})
        except library.SafetensorError as error:
            name = os.fspath(path)
            raise OSError(f"save_checkpoint: {name!r} cannot be written: {error}") from error


def _check_loads(path: Path) -> None:
    """Raise TypeError for a file that `load_checkpoint` would refuse; the tensors are not read."""
    try:
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise TypeError(
            f"save_checkpoint: {_ALLOWED}; PyTorch would not load it: {_last_line(error)}"
        ) from error


def _read(path: str | os.PathLike[str]) -> Any:
    name = os.fspath(path)
    library = _safetensors(path) if _is_safetensors(path) else None
    try:
        open_regular(path).close()  # what keeps it from being read at all is an error of its own
    except WrongFileError as error:
        raise RuntimeError(f"load_checkpoint: {error}") from None
    try:
        if library is not None:
            return library.torch.load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise pickle.UnpicklingError(
            f"load_checkpoint: {name!r} is no checkpoint, or holds more than weights: {_ALLOWED}. "
            "A class that you trust can be allowed with torch.serialization.safe_globals. PyTorch "
            f"says: {_last_line(error)}"
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # bytes of any kind raise errors of any kind
        raise RuntimeError(
            f"load_checkpoint: {name!r} is damaged or no checkpoint: {type(error).__name__}: "
            f"{error}"
        ) from error


def _split(content: Any, path: str | os.PathLike[str]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return the state dict in what a file holds, and the rest."""
    if not isinstance(content, Mapping) or not all(isinstance(each, str) for each in content):
        raise TypeError(
            f"load_checkpoint: {os.fspath(path)!r} holds a {type(content).__name__}, expected a "
            f"state dict or a dict with one as {_MODEL!r}"
        )
    for key in _MODEL_KEYS:
        if isinstance(state := content.get(key), Mapping):
            return state, {name: value for name, value in content.items() if name != key}
    return content, {}


def _check_shared(model: nn.Module, state: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    if (names := differing_names(model, state)) is not None:
        raise RuntimeError(
            f"load_checkpoint: {os.fspath(path)!r} has different tensors for {names[0]!r} and "
            f"{names[1]!r}, which are one in the model, and nothing was changed. Make a model that "
            "does not share them, as with tie_word_embeddings=False in transformers, or take out "
            "of the file the one that is not meant"
        )
    if (names := tied_names(model, state)) is not None:
        raise _of_another_model(
            path,
            f"{names[1]!r} is missing, since the file has one tensor for it and {names[0]!r}, "
            "which are two in the model",
        )


def _load(model: nn.Module, state: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Load a state dict, or raise RuntimeError and leave the model as it was."""
    own = model.state_dict()
    known = {key: value for key, value in own.items() if _is_initialized(value)}
    for key, value in known.items():
        if value.is_meta:
            raise RuntimeError(
                f"load_checkpoint: {key} of the model is on the meta device, which has no memory; "
                "give it some with model.to_empty(device='cpu')"
            )
    if _shapes(own) == _shapes(state):
        model.load_state_dict(state)
        return
    # Modules may know how to read it nevertheless. PyTorch copies what fits before it raises.
    before = {key: value.clone() for key, value in known.items()}
    try:
        model.load_state_dict(state)
    except BaseException as error:
        with torch.no_grad():
            for key, value in before.items():
                known[key].copy_(value)
        if not isinstance(error, RuntimeError):
            raise
        raise _of_another_model(path, str(error)) from error


def _of_another_model(path: str | os.PathLike[str], problem: str) -> RuntimeError:
    return RuntimeError(
        f"load_checkpoint: {os.fspath(path)!r} is of another model, and nothing was changed: "
        f"{problem}\nMake the model as it was when it was saved, or load what fits with "
        "model.load_state_dict(state, strict=False)"
    )


def _shapes(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.shape if _is_initialized(value) else None for key, value in state.items()}


def _is_initialized(value: Any) -> bool:
    """Return whether a value of a state dict is a tensor, and of no lazy module before a call."""
    return isinstance(value, Tensor) and not nn.parameter.is_lazy(value)


def _last_line(error: Exception) -> str:
    lines = [each.strip() for each in str(error).splitlines() if "WeightsUnpickler error" in each]
    return lines[0] if lines else str(error)


def _is_safetensors(path: str | os.PathLike[str]) -> bool:
    return Path(path).suffix == ".safetensors"


def _safetensors(path: str | os.PathLike[str]) -> Any:
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise ImportError(
            f"{os.fspath(path)!r} takes the package safetensors; pip install safetensors, or "
            "choose another suffix for PyTorch's own format"
        ) from error
    return safetensors


_ALLOWED = (
    "a checkpoint holds tensors, numbers, strings, None, and dicts, lists and tuples of them, as "
    "what else is in a file could run code when it is loaded"
)

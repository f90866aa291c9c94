"""Run a model under ``torch.autocast`` whenever it is called, without touching its parameters.

The model gets a class of its own, which is its class with another ``forward``: hooks would break
``torch.compile``, and a ``forward`` in the model's ``__dict__`` copies of it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from tensor_ops import BackendError

__all__ = ["autocast_always", "autocast_no_more"]


def autocast_always(model: nn.Module, device_type: str, dtype: torch.dtype) -> None:
    """Let a model run under autocast from now on; a copy of it does too.

    Raises BackendError if the model does not run the ``forward`` of its class.
    """
    model = _inner(model)
    autocast_no_more(model)
    kind: Any = type(model)
    problem = "its forward is not that of its class" if "forward" in vars(model) else None
    try:
        if problem is None:
            model.__class__ = _casting_class(kind, device_type, dtype)
    except TypeError as error:  # of modules with slots, and of TorchScript
        problem = str(error)
    if problem is not None:
        raise BackendError(
            f"precision: {type(model).__name__} cannot be run under torch.autocast, {problem}; "
            "convert the whole model (allow_fp32=False or mixed_precision=False)"
        )


def autocast_no_more(model: nn.Module) -> None:
    """Undo `autocast_always`."""
    model = _inner(model)
    base = vars(type(model)).get("_casting_base")
    if base is not None:
        model.__class__ = base


def _inner(model: nn.Module) -> nn.Module:
    """Return the model that ``torch.compile`` has wrapped, or the model."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model


@functools.cache
def _casting_class(base: Any, device_type: str, dtype: torch.dtype) -> type[nn.Module]:
    @functools.wraps(base.forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device_type, dtype=dtype):
            return base.forward(self, *args, **kwargs)

    def reduce_ex(self: nn.Module, protocol: Any) -> Any:
        reduced: Any = base.__reduce_ex__(self, protocol)
        function, args, *rest = reduced
        if function.__name__ == "__newobj__":  # of copyreg: what calls __new__ of the class
            return (_rebuild, (base, device_type, dtype), *rest)
        return (function, args, *rest)

    names = {
        "forward": forward,
        "__reduce_ex__": reduce_ex,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "_casting_base": base,
    }
    return type(base.__name__, (base,), names)


def _rebuild(base: Any, device_type: str, dtype: torch.dtype) -> nn.Module:
    kind: Any = _casting_class(base, device_type, dtype)
    model: nn.Module = kind.__new__(kind)
    return model

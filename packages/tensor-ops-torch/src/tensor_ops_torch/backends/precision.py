"""Run a model under ``torch.autocast`` whenever it is called, without touching its parameters."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import nn

__all__ = ["autocast_always", "autocast_no_more"]

# What calls of models have entered and not left yet: (who, context), the innermost last.
_entered = threading.local()


def autocast_always(model: nn.Module, device_type: str, dtype: torch.dtype) -> None:
    """Let a model run under autocast from now on; a deep copy of it does too."""
    casting = _Casting(device_type, dtype)
    model.register_forward_pre_hook(casting.enter)
    # Also after an exception, which must not leave autocast on.
    model.register_forward_hook(casting.leave, always_call=True)


def autocast_no_more(model: nn.Module) -> None:
    """Undo `autocast_always`."""
    for hooks in (model._forward_pre_hooks, model._forward_hooks):
        for key, hook in list(hooks.items()):
            if isinstance(getattr(hook, "__self__", None), _Casting):
                del hooks[key]
                model._forward_hooks_always_called.pop(key, None)


class _Casting:
    def __init__(self, device_type: str, dtype: torch.dtype) -> None:
        self.device_type, self.dtype = device_type, dtype

    def enter(self, module: nn.Module, args: Any) -> None:
        context = torch.autocast(self.device_type, dtype=self.dtype)
        context.__enter__()
        _stack().append((self, context))

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        # Not if another hook raised before `enter` was called.
        if _stack() and _stack()[-1][0] is self:
            _stack().pop()[1].__exit__(None, None, None)


def _stack() -> list[tuple[_Casting, Any]]:
    if not hasattr(_entered, "stack"):
        _entered.stack = []
    return _entered.stack

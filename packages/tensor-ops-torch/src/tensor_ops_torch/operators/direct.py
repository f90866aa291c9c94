"""An op for CPU tensors past PyTorch's dispatcher, which takes longer than a row of numbers.

Generation calls an op thousands of times per second on single rows. Where nothing listens to the
dispatcher, the backend's function is called at once; everywhere else the operator is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, autograd, nn
from torch.autograd import forward_ad

from tensor_ops.extension import Op, exchanging_function
from tensor_ops_torch.operators.tensors import EXCHANGES, dtype_name

__all__ = ["PLAIN", "REFUSED", "can_bypass_dispatcher", "direct", "shortened"]

# What is raised, before any work, for what the operator should be asked about: for tensors of other
# kinds, for those of torch.func, which have no memory, and where a backend takes no tensors.
REFUSED = (TypeError, ValueError, LookupError)
# A subclass of Tensor may mean something else by its memory.
PLAIN = frozenset({Tensor, nn.Parameter})
_is_as_is = (PLAIN | {type(None), float, int, str, bool}).__contains__


def can_bypass_dispatcher(x: Any) -> bool:
    """Return whether skipping PyTorch's dispatcher for a tensor is unobservable.

    In a model each of these questions costs a few lines of the cache, and so more than it seems to.
    """
    return (
        type(x) is Tensor
        and not torch.compiler.is_compiling()
        and x.is_cpu
        and not x.is_nested
        and not torch.is_grad_enabled()
        and forward_ad._current_level < 0
        and not torch.is_autocast_enabled("cpu")
        and torch._C._get_tracing_state() is None
        # Modes such as those that count operations.
        and not torch._C._len_torch_dispatch_stack()
        and not torch._C._len_torch_function_stack()
        and not autograd.profiler._is_profiler_enabled
    )


def direct(op: Op) -> Callable[..., Any]:
    """Return a function that computes what an operator does, or raises one of `REFUSED`.

    Its first tensor can bypass the dispatcher, the others are plain.
    """
    return exchanging_function(op, dtype_name) if EXCHANGES else _refuse


def shortened(op: Op, operator: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator that goes past the dispatcher where it can."""
    at_once = direct(op)

    def compute(x: Any, *rest: Any) -> Any:
        if can_bypass_dispatcher(x) and all(map(_is_as_is, map(type, rest))):
            try:
                return at_once(x, *rest)
            except REFUSED:
                pass  # the operator says what of, or knows better
        return operator(x, *rest)

    return compute


def _refuse(*_: Any) -> Any:
    raise TypeError

"""PyTorch compiled by Inductor: the formulas of eager PyTorch, fused into loops of C++.

Compiled once per op and dtype for any number of rows, and once more for each shape of one row,
which Inductor treats as a case of its own.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo

from comparison.cases import Case
from peers import Way
from peers import torch as eager
from tensor_ops.variants import VARIANTS

LABEL = "torch.compile"
PACKAGES = ("torch",)
HAS = eager.HAS


def start(threads: int) -> None:
    """Set the number of threads, which is compiled in."""
    eager.start(threads)


def ways(case: Case, values: dict[str, Any], out: tuple[Any, ...] | None) -> dict[str, Way]:
    """Return the compiled formula; with `out`, its copying into `out` is compiled away."""
    given = [eager.as_tensor(value) for value in values.values()]
    targets = [eager.as_tensor(array) for array in out or ()]
    rows = case.shape[0]
    if rows > 1:
        for tensor in [*given, *targets]:
            if tensor.shape[0] == rows:
                torch._dynamo.mark_dynamic(tensor, 0)
    key = (case.variant, case.dtype, rows > 1 or case.shape)
    compiled = _plain(*key) if out is None else _into(*key)
    return {"": Way(functools.partial(compiled, *given, *targets), eager.as_arrays)}


@functools.cache
def _plain(variant: str, dtype: str, rows: Any) -> Callable[..., Any]:
    return _compile(eager.PLAIN[variant])


@functools.cache
def _into(variant: str, dtype: str, rows: Any) -> Callable[..., Any]:
    formula, outputs = eager.PLAIN[variant], VARIANTS[variant].op.outputs

    def into(*tensors: Any) -> Any:
        given, targets = tensors[:-outputs], tensors[-outputs:]
        if outputs == 1:
            return targets[0].copy_(formula(*given))
        pairs = zip(targets, formula(*given), strict=True)
        return tuple(target.copy_(result) for target, result in pairs)

    return _compile(into)


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    def formula(*tensors: Any) -> Any:
        return function(*tensors)

    # Dynamo keeps what it compiled by code object, and searches it in every call: each its own.
    formula.__code__ = formula.__code__.replace()
    compiled: Callable[..., Any] = torch.compile(formula, fullgraph=True)
    return compiled

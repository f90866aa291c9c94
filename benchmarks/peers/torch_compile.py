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
from peers import UnsupportedError, Way
from peers import torch as eager

LABEL = "torch.compile"
PACKAGES = ("torch",)


def start(threads: int) -> None:
    """Set the number of threads, which is compiled in."""
    eager.start(threads)


def ways(case: Case, values: dict[str, Any], out: tuple[Any, ...] | None) -> dict[str, Way]:
    """Return the compiled formula; with `out`, its copying into `out` is compiled away."""
    if case.variant not in eager.PLAIN:
        raise UnsupportedError(f"no {case.variant} is written for PyTorch")
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
    formula = eager.PLAIN[variant]

    def into(*tensors: Any) -> Any:
        if variant == "add_rms_norm":
            *given, out, total = tensors
            result, summed = formula(*given)
            return out.copy_(result), total.copy_(summed)
        *given, out = tensors
        return out.copy_(formula(*given))

    return _compile(into)


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    def formula(*tensors: Any) -> Any:
        return function(*tensors)

    # Dynamo keeps what it compiled by code object, and searches it in every call: each its own.
    formula.__code__ = formula.__code__.replace()
    compiled: Callable[..., Any] = torch.compile(formula, fullgraph=True)
    return compiled

"""Which function runs an op for a dtype on a device, and the walk that found it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensor_ops import backends, selection
from tensor_ops.arguments import dtype_name
from tensor_ops.errors import BackendError
from tensor_ops.names import COPIES_HOST_ARRAYS
from tensor_ops.selection import Choice

if TYPE_CHECKING:
    from tensor_ops.op import Op
    from tensor_ops.state import Plan

__all__ = [
    "CPU",
    "exchanges_arrays",
    "function_for",
    "function_in_place",
    "host_function",
    "walk",
]

CPU = "cpu"


def walk(
    op: Op, plan: Plan, dtype: str | None, device: str = CPU, in_place: bool = False
) -> Choice:
    """Return the walk over a plan's candidates for one op, dtype and device.

    With `dtype` None only the presence of the op counts. With `in_place` no backend copies the
    host's arrays to a device unless it was asked for.
    """
    may_pass_over = in_place and device == CPU and plan.decision.mode == "auto"
    copying = COPIES_HOST_ARRAYS if may_pass_over else frozenset()

    def why_not(name: str) -> str | None:
        reason = _why_not(op, name, dtype, device)
        if reason is None and name in copying:
            return "it would copy the arrays from the CPU to its device"
        return reason

    return selection.choose(plan.decision.candidates, why_not)


def host_function(op: Op, plan: Plan, x: Any) -> Callable[..., Any]:
    """Return the function for a NumPy array, and keep it in the plan.

    Raises
    ------
    TypeError
        If the dtype of `x` is not supported.
    BackendError
        As `function_for`.
    """
    functions = plan.functions.setdefault(op.name, {})
    function = functions.get(x.dtype)
    if function is None:
        function = function_for(op, plan, dtype_name(op.name, op.first, x))
        functions[x.dtype] = function
    return function


def function_in_place(op: Op, plan: Plan, dtype: str, device: str) -> Callable[..., Any]:
    """Return the function that computes in the memory of a device, and keep it in the plan.

    Where the caller chose the device, nothing but a backend that was asked for copies arrays to
    another.

    Raises
    ------
    BackendError
        As `function_for`.
    """
    functions = plan.functions.setdefault(op.name, {})
    function = functions.get((dtype, device))
    if function is None:
        function = function_for(op, plan, dtype, device, in_place=True)
        functions[dtype, device] = function
    return function


def function_for(
    op: Op, plan: Plan, dtype: str, device: str = CPU, in_place: bool = False
) -> Callable[..., Any]:
    """Return the backend's function for one op, dtype and device.

    Raises
    ------
    BackendUnavailableError
        If the plan is strict and its backend is unavailable.
    BackendError
        If no candidate can run it.
    """
    plan.choice  # noqa: B018 - raises or warns before any op-specific reason is looked for
    choice = walk(op, plan, dtype, device, in_place)
    if choice.backend is None:
        steps = "; ".join(f"{step.backend}: {step.reason}" for step in choice.steps)
        raise BackendError(
            f"{op.name}: no backend can run {dtype} on {device} "
            f"({plan.decision.mode} by {plan.decision.source}): {steps}"
        )
    function: Callable[..., Any] = getattr(backends.load(choice.backend).module, op.name)
    return function


def exchanges_arrays(function: Callable[..., Any]) -> bool:
    """Return whether a backend's function takes arrays with DLPack's C exchange API as they are.

    What it refuses of them, it refuses before any work.
    """
    backend = sys.modules.get(getattr(function, "__module__", None) or "")
    return bool(getattr(backend, "EXCHANGES_ARRAYS", False))


def _why_not(op: Op, name: str, dtype: str | None, device: str) -> str | None:
    backend = backends.load(name)
    if backend.reason is not None:
        return backend.reason
    try:
        if not callable(getattr(backend.module, op.name, None)):
            return f"it has no {op.name}"
        if dtype is None:
            return None
        reason = backend.module.supports(op.name, dtype, device)  # type: ignore[union-attr]
    except backends.FAILURES as error:
        return f"it failed when asked for {op.name}: {backends.one_line(error)}"
    if reason is None or (isinstance(reason, str) and reason):
        return reason
    return f"its supports() returned {reason!r}, expected None or a reason"

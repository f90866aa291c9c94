"""Which function runs an op for a dtype on a device, and the walk that found it."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensor_ops import backends, selection
from tensor_ops.arguments import dtype_name
from tensor_ops.errors import BackendError, BackendFallbackWarning, warn_caller
from tensor_ops.names import AUTOMATIC, COPIES_HOST_ARRAYS, FASTEST, split
from tensor_ops.selection import Choice

if TYPE_CHECKING:
    from tensor_ops.op import Op
    from tensor_ops.state import Plan
    from tensor_ops.tuning_table import Ranking

__all__ = [
    "CPU",
    "exchanges_arrays",
    "function_for",
    "function_in_place",
    "host_function",
    "measured",
    "walk",
]

CPU = "cpu"


def walk(
    op: Op,
    plan: Plan,
    dtype: str | None,
    device: str = CPU,
    in_place: bool = False,
    size: int | None = None,
) -> Choice:
    """Return the walk over a plan's candidates for one op, dtype, device and number of elements.

    With `dtype` None only the presence of the op counts. With `in_place` no backend copies the
    host's arrays to a device unless it was asked for.
    """
    decision, ranking = plan.decision, measured(op, plan, dtype, device, size)
    may_pass_over = in_place and device == CPU and decision.mode in AUTOMATIC
    copying = COPIES_HOST_ARRAYS if may_pass_over else frozenset()

    def why_not(name: str) -> str | None:
        reason, backend = _why_not(op, name, dtype, device), split(name)[0]
        if reason is None and backend in copying:
            return "it would copy the arrays from the CPU to its device"
        if reason is None and ranking and backend in ranking.wrong:
            return f"it was measured to be wrong: {ranking.wrong[backend]}"
        return reason

    if ranking:
        decision = selection.in_measured_order(decision, ranking.seconds)
    return selection.choose_for(decision, why_not, backends.kind_of_device)


def measured(
    op: Op, plan: Plan, dtype: str | None, device: str, size: int | None
) -> Ranking | None:
    """Return the measured times that a plan goes by, None if it goes by none.

    They are those of host arrays: an array on a device stays on it.
    """
    if plan.decision.mode != FASTEST or device != CPU or dtype is None:
        return None
    table = plan.times.table
    return None if table is None else table.ranking(op.name, dtype, size)


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
    if plan.decision.mode == FASTEST and device == CPU and not in_place:
        return _function_by_size(op, plan, dtype)
    return _function(op, plan, dtype, device, walk(op, plan, dtype, device, in_place))


def exchanges_arrays(function: Callable[..., Any]) -> bool:
    """Return whether a backend's function takes arrays with DLPack's C exchange API as they are.

    What it refuses of them, it refuses before any work.
    """
    backend = sys.modules.get(getattr(function, "__module__", None) or "")
    return bool(getattr(backend, "EXCHANGES_ARRAYS", False))


def _function_by_size(op: Op, plan: Plan, dtype: str) -> Callable[..., Any]:
    """Return the function of the fastest backend, chosen anew for each call where sizes differ."""
    table = plan.times.table
    rankings = table.rankings(op.name, dtype) if table else []
    sizes = [ranking.size for ranking in rankings] or [None]
    functions = [
        _function(op, plan, dtype, CPU, walk(op, plan, dtype, size=size)) for size in sizes
    ]
    if table is None or all(function == functions[0] for function in functions):
        return functions[0]
    limits, first = table.limits(op.name, dtype), op.first

    def by_size(*args: Any, **kwargs: Any) -> Any:
        x = args[0] if args else kwargs[first]
        return functions[bisect_left(limits, x.size)](*args, **kwargs)

    return by_size


def _function(op: Op, plan: Plan, dtype: str, device: str, choice: Choice) -> Callable[..., Any]:
    """Return the op's function of the backend that a walk has found."""
    if choice.backend is None:
        steps = "; ".join(f"{step.backend}: {step.reason}" for step in choice.steps)
        raise BackendError(
            f"{op.name}: no backend can run {dtype} on {device} "
            f"({plan.decision.mode} by {plan.decision.source}): {steps}"
        )
    _warn_of_failures(op, choice)
    function: Callable[..., Any] = getattr(backends.load(choice.backend).module, op.name)
    return function


class _Failure(str):
    """The reason against a backend that is there and fails when it is asked."""


def _warn_of_failures(op: Op, choice: Choice) -> None:
    failed = [
        f"backend {step.backend!r}: {step.reason}"
        for step in choice.steps
        if isinstance(step.reason, _Failure)
    ]
    if failed:
        warn_caller(
            f"{op.name}: {'; '.join(failed)}. Running on {choice.backend!r} instead",
            BackendFallbackWarning,
        )


def _why_not(op: Op, name: str, dtype: str | None, device: str) -> str | None:
    reason, backend = backends.reason_against(name), backends.load(name)
    if reason is not None:
        return reason
    try:
        if not callable(getattr(backend.module, op.name, None)):
            return f"it has no {op.name}"
        if dtype is None:
            return None
        reason = backend.module.supports(op.name, dtype, device)  # type: ignore[union-attr]
    except backends.FAILURES as error:
        return _Failure(f"it failed when asked for {op.name}: {backends.one_line(error)}")
    if reason is None or (isinstance(reason, str) and reason):
        return reason
    return _Failure(f"its supports() returned {reason!r}, expected None or a reason")

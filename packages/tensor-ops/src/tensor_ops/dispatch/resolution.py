"""Which function runs an op for a dtype on a device, and the walk that found it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any

from tensor_ops import backends
from tensor_ops.backends.names import AUTOMATIC, CPU, FASTEST, split
from tensor_ops.config import selection
from tensor_ops.config.selection import Choice, Decision
from tensor_ops.errors import BackendError, BackendFallbackWarning, warn_caller

if TYPE_CHECKING:
    from tensor_ops.config.state import DispatchTable
    from tensor_ops.config.tuning_table import Ranking
    from tensor_ops.op import Op

__all__ = ["Route", "function_for", "measured", "walk"]


class Route:
    """A way of calling an op, for which a dispatch table keeps the function for each dtype.

    Attributes
    ----------
    op : Op
    device : str
        Where the arrays are, as in ``cpu`` or ``cuda:0``.
    in_place : bool
        Whether the caller chose the device. Then no backend copies the arrays to another, unless
        it was asked for.
    exchanges_arrays : bool
        Whether arrays of another library than NumPy are given as they are, by DLPack's C exchange
        API. There is no function then where the backend does not take them.
    key : str
        All of that in words, under which a dispatch table keeps the functions: no other key is
        looked up as fast.
    """

    __slots__ = ("device", "exchanges_arrays", "in_place", "key", "op")

    def __init__(
        self, op: Op, device: str = CPU, in_place: bool = False, exchanges_arrays: bool = False
    ) -> None:
        self.op = op
        self.device = device
        self.in_place = in_place
        self.exchanges_arrays = exchanges_arrays
        how = " in place" * in_place + " as they are" * exchanges_arrays
        self.key = f"{op.name} on {device}{how}"

    def function(
        self, table: DispatchTable, dtype: Hashable, name: str
    ) -> Callable[..., Any] | None:
        """Return the backend's function, and keep it in the dispatch table.

        Parameters
        ----------
        table : DispatchTable
        dtype : hashable
            The dtype in the library of the arrays.
        name : str
            The name of that dtype, such as ``float32``.

        Raises
        ------
        BackendError
            As `function_for`.
        """
        functions = table.functions.setdefault(self.key, {})
        try:
            return functions[dtype]
        except KeyError:
            pass
        function, exchanges = _found(self.op, table, name, self.device, self.in_place)
        kept = None if self.exchanges_arrays and not exchanges else function
        functions[dtype] = kept
        return kept


def walk(
    op: Op,
    table: DispatchTable,
    dtype: str | None,
    device: str = CPU,
    in_place: bool = False,
    size: int | None = None,
) -> Choice:
    """Return the walk over the candidates for one op, dtype, device and size in elements.

    With `dtype` None only the presence of the op counts. With `in_place` no backend copies the
    host's arrays to a device unless it was asked for.
    """
    decision, ranking = table.decision, measured(op, table, dtype, device, size)
    may_not_copy = in_place and device == CPU and decision.mode in AUTOMATIC

    def why_not(name: str) -> str | None:
        reason, backend = _why_not(op, name, dtype, device), split(name)[0]
        if reason is None and may_not_copy and backends.load(name).capabilities.copies_host_arrays:
            return "it would copy the arrays from the CPU to its device"
        if reason is None and ranking and backend in ranking.wrong:
            return f"it was measured to be wrong: {ranking.wrong[backend]}"
        return reason

    if ranking:
        decision = selection.in_measured_order(decision, _order(ranking, decision, why_not))
    return selection.choose_for(decision, why_not, backends.kind_of_device)


def _order(
    ranking: Ranking, decision: Decision, reason: Callable[[str], str | None]
) -> Iterable[str]:
    """Return the backends by their times; what these leave undecided, in the order of ``auto``."""
    if not ranking.undecided:
        return ranking.seconds
    steps = selection.steps(decision, reason, backends.kind_of_device)
    return ranking.order(split(step.backend)[0] for step in steps if step.reason is None)


def measured(
    op: Op, table: DispatchTable, dtype: str | None, device: str, size: int | None
) -> Ranking | None:
    """Return the measured times to go by, None if there are none.

    They are those of host arrays: an array on a device stays on it.
    """
    if table.decision.mode != FASTEST or device != CPU or dtype is None:
        return None
    times = table.times.table
    return None if times is None else times.ranking(op.name, dtype, size)


def function_for(
    op: Op, table: DispatchTable, dtype: str, device: str = CPU, in_place: bool = False
) -> Callable[..., Any]:
    """Return the backend's function for one op, dtype and device.

    Raises
    ------
    BackendUnavailableError
        If the decision is strict and its backend is unavailable.
    BackendError
        If no candidate can run it.
    """
    return _found(op, table, dtype, device, in_place)[0]


def _found(
    op: Op, table: DispatchTable, dtype: str, device: str, in_place: bool
) -> tuple[Callable[..., Any], bool]:
    """Return the function, and whether it takes arrays of other libraries as they are."""
    table.choice  # noqa: B018 - raises or warns before any op-specific reason is looked for
    if table.decision.mode == FASTEST and device == CPU and not in_place:
        return _function_by_size(op, table, dtype)
    return _function(op, table, dtype, device, walk(op, table, dtype, device, in_place))


def _function_by_size(op: Op, table: DispatchTable, dtype: str) -> tuple[Callable[..., Any], bool]:
    """Return the function of the fastest backend, chosen anew for each call where sizes differ."""
    times = table.times.table
    rankings = times.rankings(op.name, dtype) if times else []
    sizes = [ranking.size for ranking in rankings] or [None]
    found = [_function(op, table, dtype, CPU, walk(op, table, dtype, size=size)) for size in sizes]
    functions = [function for function, _ in found]
    if times is None or all(function == functions[0] for function in functions):
        return found[0]
    limits, first = times.limits(op.name, dtype), op.first

    def by_size(*args: Any, **kwargs: Any) -> Any:
        x = args[0] if args else kwargs[first]
        return functions[bisect_left(limits, x.size)](*args, **kwargs)

    # Arrays of other libraries have their own ways of telling their size.
    return by_size, False


def _function(
    op: Op, table: DispatchTable, dtype: str, device: str, choice: Choice
) -> tuple[Callable[..., Any], bool]:
    """Return the op's function of the backend that a walk has found."""
    if choice.backend is None:
        steps = "; ".join(f"{step.backend}: {step.reason}" for step in choice.steps)
        raise BackendError(
            f"{op.name}: no backend can run {dtype} on {device} "
            f"({table.decision.mode} by {table.decision.source}): {steps}"
        )
    _warn_of_failures(op, choice)
    backend = backends.load(choice.backend)
    return getattr(backend.module, op.name), backend.capabilities.exchanges_arrays


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

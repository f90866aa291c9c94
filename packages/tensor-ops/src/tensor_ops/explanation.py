"""Why a backend runs: the decision and the walk, as text and as a dict."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tensor_ops.backends.names import CPU, FASTEST
from tensor_ops.config import state
from tensor_ops.config.selection import Step
from tensor_ops.dispatch import CALL
from tensor_ops.dispatch.foreign import facts, is_foreign
from tensor_ops.dispatch.resolution import measured, walk
from tensor_ops.op import OPS, Op
from tensor_ops.op.arguments import dtype_name
from tensor_ops.op.checks import check_ndarray

__all__ = ["Explanation", "explain"]


class Explanation(NamedTuple):
    """How the backend of a call is chosen.

    Attributes
    ----------
    op : str
    dtype : str or None
        None when no arguments were given.
    device : str
    backend : str or None
        The one that runs; None if the call would raise.
    decided_by : str
        The level that decided: the call, the context, the default, a variable or the file.
    mode : str
        ``force`` and ``named`` allow one backend, ``preferred`` and ``auto`` fall back.
    steps : tuple of Step
        Every candidate looked at, with the reason for which it was passed over.
    overridden : tuple of str
        The levels that ask for another backend than the one that is forced.
    times : mapping or None
        Where the fastest backend is asked for, what ``tensor-ops tune`` has measured: `seconds` by
        backend, the fastest first, at `size` elements, on the day `date`, and the `undecided` pairs
        of backends, between which the order of ``auto`` decides; or the `reason` for which no times
        decide.
    """

    op: str
    dtype: str | None
    device: str
    backend: str | None
    decided_by: str
    mode: str
    steps: tuple[Step, ...]
    overridden: tuple[str, ...] = ()
    times: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as plain values."""
        steps = [step._asdict() for step in self.steps]
        return self._asdict() | {"steps": steps, "overridden": list(self.overridden)}

    def __str__(self) -> str:
        dtype = f" for {self.dtype}" if self.dtype else ""
        head = f"{self.op}{dtype} on {self.device}: "
        head += f"{self.backend} runs" if self.backend else "no backend can run"
        lines = [head, f"  decided by {self.decided_by} ({self.mode})"]
        lines += [
            f"  {source} asks for another, which a force does not allow"
            for source in self.overridden
        ]
        if self.times is not None:
            lines.append(f"  {_times_text(self.times)}")
        lines += [f"  {step.backend}: {step.reason or 'chosen'}" for step in self.steps]
        return "\n".join(lines)


def explain(
    op: str | Callable[..., Any], *args: Any, backend: str | None = None, **kwargs: Any
) -> Explanation:
    """Explain which backend runs a call, without running it.

    Parameters
    ----------
    op : str or function
        An op or its name.
    *args, **kwargs
        The arguments of the call; without them only the presence of the op counts.
    backend : str, optional
        As on the call.

    Returns
    -------
    Explanation
        Prints as text; `as_dict()` has the same facts.

    Raises
    ------
    ValueError
        If there is no such op.
    TypeError
        If the op does not take these arguments.
    ConfigError
        If no backend has that name.

    Examples
    --------
    >>> import tensor_ops
    >>> tensor_ops.explain("silu", backend="python").backend
    'python'
    """
    name = op if isinstance(op, str) else getattr(op, "__name__", repr(op))
    if name not in OPS:
        raise ValueError(f"there is no op {name!r}; the ops are {', '.join(OPS)}")
    found = OPS[name]
    table = state.current() if backend is None else state.table_for(backend, CALL)
    dtype, device, size = None, CPU, None
    try:
        given = found.signature.bind_partial(*args, **kwargs).arguments
    except TypeError as error:
        raise TypeError(f"{name}: {error}; the arguments are {found.signature}") from None
    if found.first in given:
        dtype, device, size = _facts(found, given[found.first])
    choice = walk(found, table, dtype, device, size=size)
    decision = table.decision
    return Explanation(
        found.name,
        dtype,
        device,
        choice.backend,
        decision.source,
        decision.mode,
        choice.steps,
        decision.overridden,
        _times(found, table, dtype, device, size),
    )


def _facts(op: Op, x: Any) -> tuple[str, str, int | None]:
    """Return the dtype, the device and, of arrays on the host, the number of elements."""
    if is_foreign(x):
        return facts(op.name, op.first, x)
    check_ndarray(op.name, op.first, x)
    return dtype_name(op.name, op.first, x), CPU, x.size


def _times(
    op: Op, table: state.DispatchTable, dtype: str | None, device: str, size: int | None
) -> dict[str, Any] | None:
    if table.decision.mode != FASTEST:
        return None
    ranking = measured(op, table, dtype, device, size)
    if ranking is not None:
        return {
            "seconds": dict(ranking.seconds),
            "size": ranking.size,
            "date": ranking.date,
            "undecided": ranking.undecided,
            "reason": None,
        }
    if dtype is None:
        reason = "the times depend on the arguments, and none are given"
    elif device != CPU:
        reason = "the array stays on its device; the times are those of arrays on the CPU"
    else:
        tune = f"tensor-ops tune --ops {op.name} --dtype {dtype}"
        reason = table.times.reason or f"no times: run '{tune}'"
    return {"seconds": {}, "size": None, "date": None, "undecided": [], "reason": reason}


def _times_text(times: Mapping[str, Any]) -> str:
    if times["reason"]:
        return str(times["reason"])
    from tensor_ops.timing import format_time

    figures = [f"{name} {format_time(seconds)}" for name, seconds in times["seconds"].items()]
    text = f"{', '.join(figures)}, measured {times['date']} at {times['size']} elements"
    pairs = ", ".join(map(" and ".join, times["undecided"]))
    return f"{text}; undecided: {pairs}, so the order of 'auto' decides" if pairs else text

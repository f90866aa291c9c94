"""Why a backend runs: the decision and the walk, as text and as a dict."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tensor_ops import state
from tensor_ops.arguments import check_ndarray, dtype_name
from tensor_ops.dispatch import CALL
from tensor_ops.foreign import dtype_and_device, is_foreign
from tensor_ops.op import OPS, Op
from tensor_ops.resolution import CPU, walk
from tensor_ops.selection import Step

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
    """

    op: str
    dtype: str | None
    device: str
    backend: str | None
    decided_by: str
    mode: str
    steps: tuple[Step, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as plain values."""
        return self._asdict() | {"steps": [step._asdict() for step in self.steps]}

    def __str__(self) -> str:
        dtype = f" for {self.dtype}" if self.dtype else ""
        head = f"{self.op}{dtype} on {self.device}: "
        head += f"{self.backend} runs" if self.backend else "no backend can run"
        lines = [head, f"  decided by {self.decided_by} ({self.mode})"]
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
    found = _op(op)
    plan = state.current() if backend is None else state.plan_for(backend, CALL)
    dtype, device = None, CPU
    given = found.signature.bind_partial(*args, **kwargs).arguments
    if found.first in given:
        dtype, device = _dtype_and_device(found, given[found.first])
    choice = walk(found, plan, dtype, device)
    decision = plan.decision
    return Explanation(
        found.name, dtype, device, choice.backend, decision.source, decision.mode, choice.steps
    )


def _dtype_and_device(op: Op, x: Any) -> tuple[str, str]:
    if is_foreign(x):
        return dtype_and_device(op.name, op.first, x)
    check_ndarray(op.name, op.first, x)
    return dtype_name(op.name, op.first, x), CPU


def _op(op: str | Callable[..., Any]) -> Op:
    name = op if isinstance(op, str) else getattr(op, "__name__", repr(op))
    if name not in OPS:
        raise ValueError(f"there is no op {name!r}; the ops are {', '.join(OPS)}")
    return OPS[name]

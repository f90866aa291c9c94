"""Why a backend runs: the decision and the walk, as text and as a dict."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tensor_ops import state
from tensor_ops.arguments import dtype_name
from tensor_ops.dispatch import CALL
from tensor_ops.foreign import device_of, dtype_text
from tensor_ops.op import OPS, Op
from tensor_ops.resolution import CPU, walk
from tensor_ops.selection import Step

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True)
class Explanation:
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
        return asdict(self) | {"steps": [asdict(step) for step in self.steps]}

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
    if args or kwargs:
        x = args[0] if args else kwargs[found.first]
        if isinstance(x, np.ndarray):
            dtype = dtype_name(found.name, found.first, x)
        else:
            dtype, device = dtype_text(x), device_of(x)
    choice = walk(found, plan, dtype, device)
    decision = plan.decision
    return Explanation(
        found.name, dtype, device, choice.backend, decision.source, decision.mode, choice.steps
    )


def _op(op: str | Callable[..., Any]) -> Op:
    name = op if isinstance(op, str) else getattr(op, "__name__", repr(op))
    if name not in OPS:
        raise ValueError(f"there is no op {name!r}; the ops are {', '.join(OPS)}")
    return OPS[name]

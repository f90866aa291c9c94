"""From a call to the function that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tensor_ops import foreign, state
from tensor_ops.arguments import check_ndarray
from tensor_ops.resolution import host_function

if TYPE_CHECKING:
    from tensor_ops.op import Op

__all__ = ["CALL", "dispatcher"]

CALL = "backend= on the call"


def dispatcher(op: Op) -> Callable[..., Any]:
    """Return the public function of an op.

    The way through it for NumPy arrays is kept short: one look-up for the plan that holds here
    and one for the dtype. Everything else goes through `_find`.
    """
    name = op.name
    keywords = {*op.kinds, "out"}
    ndarray = np.ndarray
    current, plan_for = state.current, state.plan_for

    def call(*args: Any, backend: str | None = None, **kwargs: Any) -> Any:
        if kwargs and not kwargs.keys() <= keywords:
            op.bind(args, kwargs)  # raises: what a backend takes besides is no part of the op
        plan = current() if backend is None else plan_for(backend, CALL)
        try:
            x = args[0]
            function = plan.functions[name][x.dtype if type(x) is ndarray else None]
        except LookupError:
            function = _find(op, plan, args, kwargs)
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError):
            # Asked here only, so that calls with NumPy arrays alone do not pay for the question.
            if not foreign.has_foreign_beside_array(op, args, kwargs):
                raise
        return foreign.caller(op, plan)(*args, **kwargs)

    return call


def _find(
    op: Op, plan: state.Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Callable[..., Any]:
    x = args[0] if args else op.bind(args, kwargs)[op.first]
    if foreign.is_foreign(x):
        return foreign.caller(op, plan)
    check_ndarray(op.name, op.first, x)
    return host_function(op, plan, x)

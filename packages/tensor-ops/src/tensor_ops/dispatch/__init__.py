"""The decorator of the files in ``tensor_ops/ops``, and the public functions that it makes.

Tested by tests/conformance/.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from tensor_ops.config import state
from tensor_ops.dispatch import foreign
from tensor_ops.dispatch.resolution import Route
from tensor_ops.op import OPS, Op
from tensor_ops.op.accuracy import Bound
from tensor_ops.op.arguments import dtype_name
from tensor_ops.op.checks import check_ndarray
from tensor_ops.op.samples import Sample

__all__ = ["CALL", "op"]

CALL = "backend= on the call"

P = ParamSpec("P")
R = TypeVar("R")


def op(
    *,
    bounds: Mapping[str, Bound],
    samples: Sequence[Sample] = (),
    results_like: tuple[str, ...] = (),
    wider_bounds: Mapping[tuple[str, str], Bound] | None = None,
    plain: Callable[..., Any] | None = None,
    terms: Callable[..., Any] | None = None,
    derivative_of: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Turn a NumPy function into the public, dispatched op of the same name and signature.

    An op returns one array of the shape and dtype of its first argument, unless `results_like` says
    which argument each of its results is like.
    """

    def decorate(body: Callable[P, R]) -> Callable[P, R]:
        new = Op(
            body, results_like, bounds, samples, wider_bounds or {}, plain, terms, derivative_of
        )
        OPS[new.name] = new
        public = functools.wraps(body)(_dispatcher(new))
        del public.__wrapped__  # what a caller gets is not the body
        public.__signature__ = new.signature  # type: ignore[attr-defined]
        public.__doc__ = new.docstring
        new.public = public
        return public

    return decorate


def _dispatcher(op: Op) -> Callable[..., Any]:
    """Return the public function of an op.

    The way through it for NumPy arrays is kept short: one look-up for the dispatch table in force
    here and one for the dtype. Everything else goes through `find`. What `state.current` does is
    written out, since the call takes as long as these look-ups.
    """
    keywords = {*op.kinds, "out"}
    ndarray = np.ndarray
    context_name, table_for = state.context_name.get, state.table_for
    route = Route(op)
    key = route.key
    call_foreign = foreign.caller(route)

    def find(table: state.DispatchTable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        x = args[0] if args else op.bind(args, kwargs)[op.first]
        if foreign.is_foreign(x):
            return functools.partial(call_foreign, table)
        check_ndarray(op.name, op.first, x)
        return route.function(table, x.dtype, dtype_name(op.name, op.first, x))

    def call(*args: Any, backend: str | None = None, **kwargs: Any) -> Any:
        if kwargs and not kwargs.keys() <= keywords:
            op.bind(args, kwargs)  # raises: what a backend takes besides is no part of the op
        table: Any
        if backend is None and context_name() is None:
            table = state.tables.get(None) or table_for(None)
        else:
            table = state.current() if backend is None else table_for(backend, CALL)
        try:
            x = args[0]
            function = table.functions[key][x.dtype if type(x) is ndarray else None]
        except LookupError:
            function = find(table, args, kwargs)
        try:
            # Merging an empty mapping would take as long as another look-up.
            return function(*args, **kwargs) if kwargs else function(*args)
        except (TypeError, ValueError):
            # Raises where arguments do not fit: the error of a backend says less of that.
            op.bind(args, kwargs)
            # Asked here only, so that calls with NumPy arrays alone do not pay for the question.
            if not foreign.has_foreign_beside_array(op, args, kwargs):
                raise
        return call_foreign(table, *args, **kwargs)

    return call

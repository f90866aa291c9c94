"""The decorator of the files in ``tensor_ops/ops``, which makes an op of a NumPy function.

Tested by tests/conformance/.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from tensor_ops.accuracy import Bound
from tensor_ops.dispatch import dispatcher
from tensor_ops.op_table import OPS, Op
from tensor_ops.samples import Sample

__all__ = ["OPS", "Op", "op"]

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
        public = functools.wraps(body)(dispatcher(new))
        del public.__wrapped__  # what a caller gets is not the body
        public.__signature__ = new.signature  # type: ignore[attr-defined]
        new.public = public
        return public

    return decorate

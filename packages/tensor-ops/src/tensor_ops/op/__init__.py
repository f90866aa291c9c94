"""Ops: the signature, the NumPy body, the samples and the error bounds of each, in one object.

`OPS` has every op by its name. The files in ``tensor_ops/ops`` put theirs in, with the decorator of
`tensor_ops.dispatch`. What the docstrings of all ops say alike is written here: `out`, `backend`,
what is returned and what is raised. An op of several results has `out` and "Returns" itself.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensor_ops.op.accuracy import Bound
from tensor_ops.op.arguments import Declaration, mixtures
from tensor_ops.op.checks import check_outputs, check_values
from tensor_ops.op.samples import Sample

__all__ = ["OPS", "Op"]

# Filled by the files in tensor_ops/ops, by name.
OPS: dict[str, "Op"] = {}

_OUT = """
out : array of the shape and dtype of `{first}`, optional
    Where the result goes; {full} itself or memory apart from every input."""
_BACKEND = """
backend : str, optional
    The backend that must run this call."""
_RESULT = """

Returns
-------
array of the shape and dtype of `{first}`
    `out` if it was given."""
_RAISES = """

Raises
------
TypeError
    If an argument is no array where one is expected, or has another type or dtype than those above.
ValueError
    If a shape does not fit, a number or a choice is none of those above or `out` cannot take the
    result.
BackendError
    If the backend that was asked for cannot run this{why}."""


class Op(Declaration):
    """One op and all that it means, apart from what any backend does for it.

    Attributes
    ----------
    name : str
    body : callable
        The NumPy implementation; `out` is always given and nothing is checked.
    public : callable
        What users call: it checks nothing and dispatches.
    kinds : mapping of str to ParameterKind
        Its arguments in order, without `out` and `backend`.
    results_like : tuple of str
        For each array that it returns, the argument whose shape and dtype it has. One that is
        like a row vector is a sum over all rows.
    samples : sequence of Sample
        Calls that must give right results, besides those that follow from the kinds of its
        arguments, from which all follows that must raise.
    bounds : mapping of str to Bound
        The largest allowed error for each dtype.
    wider_bounds : mapping of (str, str) to Bound
        The exceptions, by backend and dtype.
    terms : callable or None
        For bounds relative to the terms of an element: from the arguments to the magnitudes of
        these, added up, for each element of each result.
    derivative_of : str or None
        The op whose gradients it returns. A backend may have an op without its derivative.
    plain : callable or None
        The expression that a NumPy user would write, for `benchmark` to compare with: it takes
        the arrays by position and the switches by name, scalars being at their defaults.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        results_like: tuple[str, ...],
        bounds: Mapping[str, Bound],
        samples: Sequence[Sample],
        wider_bounds: Mapping[tuple[str, str], Bound],
        plain: Callable[..., Any] | None = None,
        terms: Callable[..., Any] | None = None,
        derivative_of: str | None = None,
    ) -> None:
        super().__init__(body)
        self.public: Callable[..., Any] = body
        self.body = body
        self.bounds = bounds
        self.samples = samples
        self.wider_bounds = wider_bounds
        self.plain = plain
        self.terms = terms
        self.derivative_of = derivative_of
        self.results_like = results_like or (self.first,)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def docstring(self) -> str:
        """The docstring of the public function: the body's, with the sections that all share."""
        own, notes, rest = inspect.cleandoc(self.body.__doc__ or "").partition("\n\nNotes\n")
        parameters, returns, results = own.partition("\n\nReturns\n")
        if not returns:
            full = " itself, ".join(
                f"`{name}`" for name, kind in self.kinds.items() if kind.is_full
            )
            parameters += _OUT.format(first=self.first, full=full)
            results = _RESULT.format(first=self.first)
        why = ": not every backend has derivatives" if self.derivative_of else ""
        return f"{parameters}{_BACKEND}{returns}{results}{_RAISES.format(why=why)}{notes}{rest}"

    @property
    def first(self) -> str:
        """The name of the argument that gives the result its shape and dtype."""
        return next(iter(self.kinds))

    @property
    def outputs(self) -> int:
        """How many arrays it returns."""
        return len(self.results_like)

    @property
    def mixtures(self) -> list[tuple[str, ...]]:
        """The sets of arguments that may be float32 beside a half `x`."""
        return mixtures(self.kinds)

    def bound(self, dtype: str, backend: str) -> Bound:
        """Return the largest error that `backend` may make for a dtype."""
        return self.wider_bounds.get((backend, dtype), self.bounds[dtype])

    def terms_of(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what `measure` is to know of the terms of each result, None for most ops."""
        if self.terms is None:
            return (None,) * self.outputs
        with np.errstate(all="ignore"):
            found = self.terms(**values)
        return found if isinstance(found, tuple) else (found,)

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Run the op with NumPy: check the arguments, make room for the result, run the body."""
        values = self.bind(args, kwargs)
        out = values.pop("out")
        check_values(self.name, self.kinds, values)
        outputs = check_outputs(self.name, self.results_like, self.kinds, values, out)
        # Subclasses may give operators another meaning, as np.matrix does to multiplication.
        values = {name: _plain(value) for name, value in values.items()}
        plain = tuple(map(_plain, outputs))
        if outputs[0].size:
            # NaN, infinity and division by zero are regular results here: NumPy must not warn.
            with np.errstate(all="ignore"):
                self.body(**values, out=plain[0] if self.outputs == 1 else plain)
        else:
            for each in plain:
                each[...] = 0  # the sums over no rows
        return outputs[0] if self.outputs == 1 else outputs


def _plain(value: Any) -> Any:
    """Return an array of a subclass as a plain one over the same memory, all else as it is."""
    is_subclass = isinstance(value, np.ndarray) and type(value) is not np.ndarray
    return value.view(np.ndarray) if is_subclass else value

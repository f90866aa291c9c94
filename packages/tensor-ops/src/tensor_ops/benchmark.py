"""Timing the ops on several backends side by side, with the largest error beside the time.

The op files hold the plain NumPy expression of each op, which a user would write without this
library. It is timed as well, as `PLAIN`, and is what speed-ups are over.

>>> from tensor_ops import benchmark
>>> results = benchmark.measure_ops(benchmark.cases(["silu"], [(2, 8)]), repeats=1)
>>> results[0].backend, results[0].speedup
('plain NumPy', 1.0)
>>> results[1].backend
'python'
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensor_ops import registry
from tensor_ops.backends.names import LAST_RESORT
from tensor_ops.config import state
from tensor_ops.dispatch import CALL
from tensor_ops.dispatch.resolution import function_for
from tensor_ops.errors import TensorOpsError
from tensor_ops.numerics import plain
from tensor_ops.op import Op
from tensor_ops.op.accuracy import Bound, Measured, measure
from tensor_ops.op.samples import Draw, arguments
from tensor_ops.timing import Timing, format_time, time_calls
from tensor_ops.variants import VARIANTS, Variant, named, variant

__all__ = [
    "PLAIN",
    "SHAPES",
    "Case",
    "Result",
    "cases",
    "format_table",
    "measure_op",
    "measure_ops",
    "prepare",
]

# The name of the plain expression, where results have the name of a backend.
PLAIN = "plain NumPy"

# One token and one prompt at the hidden size of a 7B model.
SHAPES = ((1, 4096), (128, 4096))
HEAD_DIM = 128


@dataclass(frozen=True)
class Case:
    """One op at one shape and dtype."""

    # The name of a variant, such as ``gelu:none``; a mere op is taken with its defaults.
    op: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    def __str__(self) -> str:
        return f"{self.op} {'x'.join(map(str, self.shape))} {self.dtype}"


@dataclass(frozen=True)
class Result:
    """Time and accuracy of one backend, or of the plain expression, in one case."""

    case: Case
    # Its name, or `PLAIN`.
    backend: str
    # The bound that the error may not exceed.
    bound: Bound
    # None if the backend did not run it.
    timing: Timing | None = None
    # The plain expression's median over this one; None if the op has no such expression.
    speedup: float | None = None
    # The largest error, against the NumPy body in float64.
    accuracy: Measured | None = None
    # Why the backend does not take this case; the ops then run elsewhere.
    unsupported: str | None = None
    # The failure of a backend that does take it.
    failure: str | None = None

    @property
    def ok(self) -> bool:
        """False if the backend failed or its result is wrong; plain NumPy may be less accurate."""
        return self.failure is None and (self.backend == PLAIN or self.is_accurate)

    @property
    def is_accurate(self) -> bool:
        """False if there is a result and it is out of its bound."""
        return self.accuracy is None or self.accuracy.within

    def as_dict(self) -> dict[str, Any]:
        """Return every figure as a plain value that JSON can hold."""
        timing, accuracy = self.timing, self.accuracy
        return {
            "op": self.case.op,
            "options": dict(variant(self.case.op).options),
            "shape": list(self.case.shape),
            "dtype": self.case.dtype,
            "backend": self.backend,
            "median_seconds": timing and timing.median,
            "low_seconds": timing and timing.low,
            "high_seconds": timing and timing.high,
            "rounds": timing and timing.rounds,
            "calls_per_round": timing and timing.calls,
            "speedup": self.speedup,
            # a result without the right shape or the right NaNs has no error in numbers
            "error": accuracy.error if accuracy and math.isfinite(accuracy.error) else None,
            "error_limit": accuracy and accuracy.limit,
            "error_unit": self.bound.unit,
            "within_bound": accuracy and accuracy.within,
            "problem": accuracy and accuracy.problem,
            "unsupported": self.unsupported,
            "failure": self.failure,
        }


def cases(
    ops: Iterable[str] | None = None,
    shapes: Iterable[tuple[int, ...]] = SHAPES,
    dtypes: Iterable[str] = ("float32",),
) -> list[Case]:
    """Return every variant of every op (all of them by default) at every shape and dtype.

    Ops on heads take a shape (tokens, hidden size) as (tokens, heads, head dim).
    """
    chosen = VARIANTS.values() if ops is None else [each for name in ops for each in named(name)]
    return [
        Case(each.name, _own_shape(each.op, shape), dtype)
        for each, dtype, shape in itertools.product(chosen, list(dtypes), list(shapes))
    ]


def measure_ops(
    cases: Iterable[Case],
    backends: Sequence[str] | None = None,
    *,
    seconds: float = 1.0,
    repeats: int | None = None,
) -> list[Result]:
    """Measure each case; see `measure_op`."""
    results = (measure_op(case, backends, seconds=seconds, repeats=repeats) for case in cases)
    return list(itertools.chain.from_iterable(results))


def measure_op(
    case: Case,
    backends: Sequence[str] | None = None,
    *,
    seconds: float = 1.0,
    repeats: int | None = None,
) -> list[Result]:
    """Measure one case as a plain expression, on the NumPy backend and on others.

    Every round times every backend, in an order that turns round each time, so that whatever
    disturbs the machine disturbs all of them alike.

    Parameters
    ----------
    case : Case
    backends : sequence of str, optional
        Names of backends; those that are available by default.
    seconds : float
        For how long, all backends together; at least six rounds are run.
    repeats : int, optional
        The number of rounds, instead of a time.

    Returns
    -------
    list of Result
        That of the plain expression first, if the op has one, then the NumPy backend's.
    """
    names = registry.get_available_backends(runs_programs=False) if backends is None else backends
    first = [PLAIN] if variant(case.op).op.plain else []
    results, calls = prepare(case, [*first, LAST_RESORT, *names])
    timings = time_calls(calls, seconds, repeats)
    base = timings.get(PLAIN)
    for name, timing in timings.items():
        speedup = base.median / timing.median if base else None
        results[name] = replace(results[name], timing=timing, speedup=speedup)
    return list(results.values())


def prepare(
    case: Case, names: Iterable[str]
) -> tuple[dict[str, Result], dict[str, Callable[[], Any]]]:
    """Run a case once on each backend; return the untimed results, and the calls that can be timed.

    Parameters
    ----------
    case : Case
    names : iterable of str
        Backends, and `PLAIN` for the plain expression.
    """
    what = variant(case.op)
    results = {
        name: Result(case, name, what.op.bound(case.dtype, name)) for name in dict.fromkeys(names)
    }
    calls: dict[str, Callable[[], Any]] = {}
    try:
        values = arguments(what.op, case.shape, Draw(case.dtype, f"benchmark/{case.op}"))
        wide = {name: value.astype(np.float64) for name, value in values.items()}
        reference = _outputs(what.op.numpy(**wide, **what.options))
        terms = what.op.terms_of({**wide, **what.options})
    except (TypeError, ValueError, MemoryError) as error:  # nobody can run such a shape
        failed = {name: replace(each, failure=str(error)) for name, each in results.items()}
        return failed, calls
    for name, result in results.items():
        results[name], call = _check(result, values, (reference, terms))
        if call is not None:
            calls[name] = call
    return results, calls


def format_table(results: Iterable[Result]) -> str:
    """Return results as text, one line each."""
    head = ("op", "shape", "dtype", "backend", "median", "95% interval", "vs NumPy", "error", "")
    rows = [head, *map(_row, results)]
    # The last cell may be a long explanation, so it does not count for the widths.
    widths = [max(len(row[column]) for row in rows) for column in range(len(head) - 1)]
    lines = []
    for row in rows:
        cells = [
            f"{cell:>{width}}" if 4 <= column <= 6 else f"{cell:{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return "\n".join(lines)


def _own_shape(op: Op, shape: tuple[int, ...]) -> tuple[int, ...]:
    on_heads = any(kind.role == "half_rows" for kind in op.kinds.values())
    if on_heads and len(shape) == 2 and shape[1] % HEAD_DIM == 0:
        return (shape[0], shape[1] // HEAD_DIM, HEAD_DIM)
    return shape


def _check(
    result: Result, values: dict[str, Any], expected: tuple[tuple[Any, ...], tuple[Any, ...]]
) -> tuple[Result, Callable[[], Any] | None]:
    """Run a backend once; return what that says of it, and the call to time if there is one."""
    what = variant(result.case.op)
    try:
        function = _function(result, what)
    except TensorOpsError as error:
        return replace(result, unsupported=str(error)), None
    call = _call(function, what, values)
    try:
        accuracy = _accuracy(call(), *expected, result.bound)
    except Exception as error:  # a backend may fail in any way
        if result.backend == PLAIN and isinstance(error, ModuleNotFoundError):
            return replace(result, unsupported=f"it needs more than NumPy: {error}"), None
        return replace(result, failure=f"{type(error).__name__}: {error}"), None
    return replace(result, accuracy=accuracy), call


def _function(result: Result, what: Variant) -> Callable[..., Any]:
    if result.backend == PLAIN:
        assert what.op.plain is not None
        return plain.caller(what.op.plain, result.case.dtype)
    return function_for(what.op, state.table_past_forces(result.backend, CALL), result.case.dtype)


def _call(function: Callable[..., Any], what: Variant, values: dict[str, Any]) -> Callable[[], Any]:
    """Return a call with its arguments given by position where they can be, as users do."""
    leading = list(itertools.takewhile(values.__contains__, what.op.kinds))
    rest = {name: value for name, value in values.items() if name not in leading}
    return functools.partial(function, *(values[name] for name in leading), **rest, **what.options)


def _outputs(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def _accuracy(
    result: Any, reference: tuple[Any, ...], terms: tuple[Any, ...], bound: Bound
) -> Measured:
    """Return the worst of the outputs."""
    measured = [
        measure(np.asarray(got), expected, bound, of_terms)
        for got, expected, of_terms in zip(_outputs(result), reference, terms, strict=True)
    ]
    return max(measured, key=lambda each: (not each.within, each.error))


def _row(result: Result) -> tuple[str, ...]:
    case, timing = result.case, result.timing
    what = (case.op, "x".join(map(str, case.shape)), case.dtype, result.backend)
    if timing is None or result.accuracy is None:
        note = f"FAILED: {result.failure}" if result.failure else f"skipped: {result.unsupported}"
        return (*what, "-", "-", "-", "-", " ".join(note.split()))
    interval = "-"
    if timing.low is not None and timing.high is not None:
        interval = f"{format_time(timing.low)} .. {format_time(timing.high)}"
    speedup = "-" if result.speedup is None else f"{result.speedup:.2f}x"
    units = {"ulp": "ULP", "element": "relative", "row": "of row's largest", "terms": "of terms"}
    unit = units[result.bound.unit]
    return (
        *what,
        format_time(timing.median),
        interval,
        speedup,
        f"{result.accuracy.error:.2g} {unit} (limit {result.accuracy.limit:.2g})",
        _verdict(result),
    )


def _verdict(result: Result) -> str:
    if result.is_accurate:
        return "ok"
    problem = (result.accuracy and result.accuracy.problem) or "out of bound"
    return f"WRONG: {problem}" if not result.ok else problem

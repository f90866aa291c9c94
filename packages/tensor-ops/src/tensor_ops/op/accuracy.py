"""Error bounds, and the measuring of results against a reference in higher precision."""

import math
from typing import Any, Literal, NamedTuple

import numpy as np

__all__ = ["Bound", "Measured", "elementwise", "measure", "of_terms", "rowwise"]


class Bound(NamedTuple):
    """How far a result may be from the reference rounded to its dtype.

    Attributes
    ----------
    limit : float
        In `unit`.
    unit : {"ulp", "element", "row", "terms"}
        Units in the last place of each reference element, relative to the element, to the largest
        magnitude in the element's row, or to the magnitudes of the element's terms, added up.
    grows : bool
        Whether the limit is multiplied by max(1, sqrt(n) / 32) for rows of length n.
    of_row : float
        What is always allowed, relative to the largest magnitude in the element's row and
        multiplied as the limit is: where the terms of an element cancel, its own digits are lost.
    signed_zeros : bool
        Whether a zero must have the sign of the reference, which may be a value too small for the
        dtype.

    Notes
    -----
    Relative to the row, weights are taken to be of like magnitude: one that dwarfs the others, on
    an element near the row's mean, brings out more digits than the row has. Nor may bias and
    weighted elements cancel in all of a row: what is left is smaller than what was rounded. For
    such rows `measure` takes the magnitudes of the terms, with which the bound holds for any.

    A bound relative to the element holds for weights of at most 1 / eps of the dtype that the op
    computes in, 2**23 in float32 and 2**52 in float64. The normalized element, before its weight,
    may be subnormal or zero: a larger weight multiplies the error of that, and an infinite one
    makes NaN of a zero.

    An error of the dtype's smallest normal number is always allowed: subnormal numbers have less
    relative precision.
    """

    limit: float
    unit: Literal["ulp", "element", "row", "terms"] = "ulp"
    grows: bool = False
    of_row: float = 0.0
    signed_zeros: bool = False

    def at(self, n: int) -> float:
        """Return the limit for rows of length n."""
        return self.limit * _growth(n) if self.grows else self.limit

    def __str__(self) -> str:
        text = f"{self.limit:g}{_GROWTH if self.grows else ''} {_UNITS[self.unit]}"
        return f"{text} or {self.of_row:g}{_GROWTH} of the row's largest" if self.of_row else text


_UNITS = {
    "ulp": "ULP",
    "element": "relative",
    "row": "of the row's largest",
    "terms": "of the terms' magnitudes",
}


class Measured(NamedTuple):
    """The largest error of a result, in its bound's unit, and what was allowed."""

    error: float
    limit: float
    problem: str | None = None

    @property
    def within(self) -> bool:
        return self.problem is None and self.error <= self.limit


def elementwise(
    float32: float = 4, half: float = 1, float64: float = 8, *, signed_zeros: bool = False
) -> dict[str, Bound]:
    """Return bounds in ULP for an elementwise op."""
    limits = {"float32": float32, "float16": half, "bfloat16": half, "float64": float64}
    return {name: Bound(limit, signed_zeros=signed_zeros) for name, limit in limits.items()}


def of_terms(
    float32: float = 6e-7, float16: float = 1e-3, bfloat16: float = 8e-3, float64: float = 2e-15
) -> dict[str, Bound]:
    """Return bounds for an op whose terms may cancel, relative to their magnitudes."""
    limits = {"float32": float32, "float16": float16, "bfloat16": bfloat16, "float64": float64}
    return {name: Bound(limit, "terms") for name, limit in limits.items()}


def rowwise(unit: Literal["element", "row"] = "element") -> dict[str, Bound]:
    """Return bounds for an op that sums over rows."""
    # Half types are rounded from float32, whose own error may be many ULP of a small element.
    half = Bound(2, of_row=1e-6) if unit == "row" else Bound(2)
    return {
        "float32": Bound(1e-6, unit, grows=True),
        "float16": half,
        "bfloat16": half,
        "float64": Bound(2e-15, unit, grows=True),
    }


def measure(result: Any, reference: Any, bound: Bound, terms: Any = None) -> Measured:
    """Compare a result with a reference of the same shape and more precision.

    Shape and dtype come first, then the places of NaN and Inf and signs of zeros, then the error.

    Parameters
    ----------
    result : numpy.ndarray
        What a backend returned.
    reference : numpy.ndarray
        The same op in float64 or longer.
    bound : Bound
    terms : numpy.ndarray, optional
        For each element the magnitudes of its terms, added up: these then stand for the largest
        magnitude in the row. A bound relative to them needs them.

    Returns
    -------
    Measured

    Raises
    ------
    ValueError
        If the bound is relative to the terms and these are not given.
    """
    if bound.unit == "terms" and terms is None:
        raise ValueError(f"the bound is {bound}: give their magnitudes as terms=Op.terms_of(...)")
    if result.shape != reference.shape:
        return _broken(bound, f"has shape {result.shape}, expected {reference.shape}")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded = reference.astype(result.dtype).astype(reference.dtype)
        wide = result.astype(reference.dtype)
    zeros = (wide == 0) & (rounded == 0) & bound.signed_zeros
    for what, same in (
        ("NaN", np.isnan(wide) == np.isnan(rounded)),
        ("infinity", np.where(np.isinf(wide) | np.isinf(rounded), wide == rounded, True)),
        ("the sign of zero", ~zeros | (np.signbit(wide) == np.signbit(rounded))),
    ):
        if not same.all() and not (what == "infinity" and np.isnan(wide[~same]).all()):
            place = tuple(int(axis[0]) for axis in np.nonzero(~same))
            return _broken(
                bound, f"differs in {what} at {place}: got {wide[place]}, expected {rounded[place]}"
            )
    import ml_dtypes

    finite = np.isfinite(rounded)
    if not finite.any():
        return Measured(0.0, bound.at(_row_length(result)))
    info: Any = ml_dtypes.finfo(result.dtype)  # type: ignore[no-untyped-call]
    magnitude = np.where(finite, np.abs(rounded), 0)
    error = np.where(finite, np.abs(wide - np.where(finite, rounded, 0)), 0)
    largest = magnitude.max(axis=-1, keepdims=True) if result.ndim else magnitude
    if terms is not None:
        largest = np.where(finite, terms, 0)
    if bound.unit in ("row", "terms"):
        magnitude = np.broadcast_to(largest, magnitude.shape)
    smallest = float(info.smallest_normal)
    scale = np.maximum(magnitude, smallest)
    if bound.unit == "ulp":
        scale = np.ldexp(float(info.eps), np.frexp(scale)[1] - 1)
    n = _row_length(result)
    limit = bound.at(n)
    allowed = np.maximum(smallest, bound.of_row * _growth(n) * largest)
    relative = np.where(error <= allowed, np.minimum(error / scale, limit), error / scale)
    return Measured(float(relative.max()), limit)


def _broken(bound: Bound, problem: str) -> Measured:
    return Measured(math.inf, bound.limit, problem)


_GROWTH = " * max(1, sqrt(n)/32)"


def _growth(n: int) -> float:
    return max(1.0, math.sqrt(n) / 32)


def _row_length(result: Any) -> int:
    return int(result.shape[-1]) if result.ndim else 1

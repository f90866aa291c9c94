"""Normalizing rows without overflow and without losing small values."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["divide_by_rms", "normalized_rows", "standardize"]

Array = np.ndarray[Any, Any]
Limits = Mapping[np.dtype[Any], tuple[float, float]]

# Between these the mean of squares has lost nothing to underflow or overflow. A sum of float64
# squares that overflows is infinite, so that its mean is outside too.
SAFE: Limits = {np.dtype(np.float32): (1e-30, 1e33), np.dtype(np.float64): (1e-290, 1e300)}
# Differences of subnormal numbers have lost digits too: they show unless the divisor is so large
# that the results are subnormal themselves.
SAFE_CENTERED: Limits = {np.dtype(np.float32): (1e-14, 1e33), np.dtype(np.float64): (1e-30, 1e300)}
# The differences of smaller float64 numbers may need digits below the least subnormal number.
TINY = 2.0**-800


def divide_by_rms(
    rows: Array,
    eps: float,
    out: Array,
    sources: tuple[Array, ...] = (),
    combine: Callable[..., Array] | None = None,
    safe: Limits = SAFE,
) -> None:
    """Write ``rows / sqrt(mean(rows**2) + eps)`` into `out`, which may be `rows` itself.

    Rows whose mean of squares is not within the `safe` limits of their dtype are computed again in
    float64, times a power of two that brings them near one. The rows are ``combine(*sources)``,
    where that is given: what overflows there is computed again too.
    """
    mean = _means(np.square(rows)) + rows.dtype.type(eps)
    low, high = safe[rows.dtype]
    # Written so that NaN, too, is outside: it may come from an overflow.
    outside = ~((mean >= low) & (mean <= high))[:, 0]
    again = None
    if outside.any():
        selected = [each[outside].astype(np.float64) for each in sources or (rows,)]
        again = _divided_after_scaling(selected, combine, eps)
    np.multiply(rows, np.reciprocal(np.sqrt(mean)), out=out)
    if again is not None:
        out[outside] = again


def standardize(rows: Array, eps: float, out: Array) -> None:
    """Write ``(rows - mean) / sqrt(var + eps)`` into `out`, which may be `rows` itself."""
    divide_by_rms(_centered(rows), eps, out, (rows,), _centered, SAFE_CENTERED)


def normalized_rows(rows: Array, eps: float, centered: bool = False) -> tuple[Array, Array]:
    """Return ``rows * scale`` and ``scale``, which is ``1 / sqrt(mean(rows**2) + eps)``.

    The rows are float64. Where `centered` is true, their means are subtracted first.
    """
    near, scaled_eps, exponent = _near_one([rows], _centered if centered else None, eps)
    scale = 1 / np.sqrt(_means(np.square(near)) + scaled_eps)
    return near * scale, np.ldexp(scale, -exponent)


def _divided_after_scaling(
    sources: list[Array], combine: Callable[..., Array] | None, eps: float
) -> Array:
    """Return the rows over their root mean square, computed near one."""
    rows, scaled_eps, _ = _near_one(sources, combine, eps)
    result: Array = rows / np.sqrt(_means(np.square(rows)) + scaled_eps)
    return result


def _near_one(
    sources: list[Array], combine: Callable[..., Array] | None, eps: float
) -> tuple[Array, Array, Array]:
    """Return combined rows over a power of two that brings them near one, and what goes with them.

    That is eps over the square of the power, and the exponent of the power. The rows are combined
    first, since what is left of a row when its mean is subtracted may be as small as the root of
    eps, or zero.
    """
    rows, shift = sources[0], np.zeros((), np.int64)
    if combine:
        # A sum that overflows does not where its terms are smaller. The exponent is beyond the
        # length of any row.
        rows = combine(*sources)
        is_finite = np.isfinite(rows).all(axis=-1, keepdims=True)
        # Nor does the mean of subnormal numbers lose digits where these are larger.
        is_tiny = np.max([_largest(each) for each in sources], axis=0) < TINY
        shift = np.where(is_finite, np.where(is_tiny, 128, 0), -64)
        if shift.any():
            rows = combine(*(np.ldexp(each, shift) for each in sources))
    # Zero for rows with infinities or NaN.
    exponent = np.frexp(np.maximum(_largest(rows), np.ldexp(np.sqrt(eps), shift)))[1]
    rows = np.ldexp(rows, -exponent)
    # Where the rows are zero, eps is all there is in the divisor.
    smallest = np.finfo(np.float64).smallest_normal if eps else 0.0
    scaled_eps = np.maximum(np.ldexp(eps, 2 * (shift - exponent)), smallest)
    return rows, scaled_eps, exponent - shift


def _centered(rows: Array) -> Array:
    """Return the rows minus their means, accurately even where the means are far from zero."""
    centered: Array = rows - _means(rows)
    # The rounding of the mean is small beside the mean, but not beside what is left.
    centered -= _means(centered)
    return centered


def _largest(rows: Array) -> Array:
    largest: Array = np.abs(rows).max(axis=-1, keepdims=True)
    return largest


def _means(rows: Array) -> Array:
    means: Array = rows.sum(axis=-1, keepdims=True)
    means /= rows.shape[-1]
    return means

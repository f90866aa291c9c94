"""Normalizing rows without overflow and without losing small values."""

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["divide_by_rms", "standardize"]

Array = np.ndarray[Any, Any]

# Between these, the mean of float32 squares has lost nothing to underflow or overflow.
SAFE_LOW, SAFE_HIGH = 1e-30, 1e33


def divide_by_rms(
    rows: Array, eps: float, out: Array, widen: Callable[[Array], Array] | None = None
) -> None:
    """Write ``rows / sqrt(mean(rows**2) + eps)`` into `out`, which may be `rows` itself.

    Rows whose squares leave the range of float32 are computed in float64. `widen` takes a mask
    of rows and returns them in float64; without it, `rows` are converted.
    """
    mean = _means(np.square(rows)) + rows.dtype.type(eps)
    wide: Array | None = None
    if rows.dtype == np.float32:
        # Written so that NaN, too, is outside: it may come from an overflow.
        outside = ~((mean >= SAFE_LOW) & (mean <= SAFE_HIGH))[:, 0]
        if outside.any():
            wide = widen(outside) if widen else rows[outside].astype(np.float64)
    np.multiply(rows, np.reciprocal(np.sqrt(mean)), out=out)
    if wide is not None:
        out[outside] = wide / np.sqrt(_means(np.square(wide)) + eps)


def standardize(rows: Array, eps: float, out: Array) -> None:
    """Write ``(rows - mean) / sqrt(var + eps)`` into `out`, which may be `rows` itself."""
    divide_by_rms(
        _centered(rows), eps, out, lambda selected: _centered(rows[selected].astype(np.float64))
    )


def _centered(rows: Array) -> Array:
    """Return the rows minus their means, accurately even where the means are far from zero."""
    centered: Array = rows - _means(rows)
    # The rounding of the mean is small beside the mean, but not beside what is left.
    centered -= _means(centered)
    return centered


def _means(rows: Array) -> Array:
    means: Array = rows.sum(axis=-1, keepdims=True)
    means /= rows.shape[-1]
    return means

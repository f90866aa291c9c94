"""Normalizing rows without overflow and without losing small values."""

from typing import Any

import numpy as np

__all__ = ["divide_by_rms"]

Array = np.ndarray[Any, Any]

# Between these, the mean of float32 squares has lost nothing to underflow or overflow.
SAFE_LOW, SAFE_HIGH = 1e-30, 1e33


def divide_by_rms(rows: Array, eps: float, out: Array) -> None:
    """Write ``rows / sqrt(mean(rows**2) + eps)`` into `out`, which may be `rows` itself.

    Rows whose squares leave the range of float32 are computed in float64.
    """
    mean = np.square(rows).mean(axis=-1, keepdims=True) + rows.dtype.type(eps)
    wide: Array | None = None
    if rows.dtype == np.float32:
        outside = ((mean < SAFE_LOW) | (mean > SAFE_HIGH))[:, 0]
        if outside.any():
            wide = rows[outside].astype(np.float64)
    np.multiply(rows, np.reciprocal(np.sqrt(mean)), out=out)
    if wide is not None:
        out[outside] = wide / np.sqrt(np.square(wide).mean(axis=-1, keepdims=True) + eps)

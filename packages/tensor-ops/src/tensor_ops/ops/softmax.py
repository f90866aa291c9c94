"""Softmax of rows."""

import math
from typing import Any

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics.blocks import WIDE, row_blocks
from tensor_ops.numerics.rounding import difference_error, exp_of_sum, product_error
from tensor_ops.op.accuracy import Bound, rowwise
from tensor_ops.op.arguments import Array, Finite, Rows
from tensor_ops.op.samples import WIDE_RANGE, Draw, Sample

# From e**0 on, a row's sum is at least one; sums of e**60 stay far below float32's largest number.
SAFE = (0.0, 60.0)


def _large(draw: Draw) -> float:
    return 1.7e308 if draw.dtype == WIDE else 3.3e38


def _plain(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@op(
    bounds=rowwise(),
    plain=_plain,
    # PyTorch has no more than float64: the error of rounding the exponent, which goes down to -745,
    # is that of the result.
    wider_bounds={("torch", "float64"): Bound(2e-13, "element", grows=True)},
    samples=[
        Sample("scale", lambda draw: (draw.normal(3, 64, scale=8.0), 0.125)),
        Sample("negative scale", lambda draw: (draw.normal(3, 64), -0.7)),
        Sample("scale of zero", lambda draw: (draw.normal(3, 64), 0.0)),
        Sample("scale that is no power of two", lambda draw: (draw.normal(3, 257, scale=9.0), 0.1)),
        Sample("small elements", lambda draw: draw.cast(np.linspace(-85, 0, 400)[None])),
        Sample("far from zero", lambda draw: draw.cast(draw.random.uniform(1000, 1080, (3, 65)))),
        Sample("equal elements", lambda draw: draw.full(7.0, 2, 33)),
        Sample("one column", lambda draw: draw.normal(5, 1)),
        Sample(
            "masked",
            lambda draw: (
                draw.cast(np.where(draw.random.random((4, 50)) < 0.5, -np.inf, 0.0)),
                0.3,
            ),
        ),
        Sample("all masked", lambda draw: draw.full(-np.inf, 2, 9)),
        Sample("infinity", lambda draw: draw.cast([[0.0, np.inf, 1.0], [0.0, 1.0, 2.0]])),
        Sample("masked, scale of zero", lambda draw: (draw.cast([[0.0, -np.inf, 1.0]]), 0.0)),
        Sample("infinity, negative scale", lambda draw: (draw.cast([[0.0, np.inf, 1.0]]), -1.0)),
        Sample(
            "masked, scales that float32 has no room for",
            lambda draw: (draw.cast([[0.0, -np.inf, 1.0]]), 1e-100),
        ),
        Sample(
            "infinity, negative scale that float32 has no room for",
            lambda draw: (draw.cast([[0.0, np.inf, 1.0]]), -1e-100),
        ),
        Sample(
            "products that overflow",
            lambda draw: (draw.cast([[3e38, -3e38, 2e38], [1e38, 1e38, 0.0]]), 1e3),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "products that overflow float64",
            lambda draw: (draw.cast([[6e4, -6e4, 3e4], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]), 1e305),
        ),
        Sample(
            "products that overflow float64, negative scale",
            lambda draw: (draw.cast([[6e4, -6e4, 3e4], [1.0, 1.0, -np.inf]]), -1e305),
        ),
        Sample(
            "small elements, scale that float32 has no room for",
            lambda draw: (draw.cast([[2e-38, 0.0, 1e-38], [0.0, 0.0, 3e-38]]), 1e300),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "small elements, large scale",
            lambda draw: (draw.cast([np.array([0, 1, 0.5, -2]) / _large(draw)]), _large(draw)),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "difference that overflows",
            lambda draw: (draw.cast([np.array([1, -1, 0.5, -0.9]) * _large(draw)]), 2e-38),
            dtypes=("float32", "bfloat16"),
        ),
        Sample(
            "difference that overflows float64",
            lambda draw: (draw.cast([np.array([1, -1, 0.5, -0.9]) * _large(draw)]), -2e-308),
            dtypes=("float64",),
        ),
        Sample(
            "difference that overflows, scale of zero",
            lambda draw: (draw.cast([np.array([1, -1, 0.5, -0.9]) * _large(draw)]), 0.0),
            dtypes=WIDE_RANGE,
        ),
    ],
)
def softmax(x: Rows, scale: Finite = 1.0, *, out: Array = None, backend: str | None = None) -> Any:
    r"""Turn each row, times a scale, into positive numbers whose sum is one.

    .. math:: y_i = \frac{e^{s x_i - m}}{\sum_j e^{s x_j - m}}, \qquad m = \max_j s x_j

    Parameters
    ----------
    x : array, shape (..., n)
        float32, float16, bfloat16 or float64. Rows lie along the last axis.
    scale : float, optional
        Finite; what attention calls ``1 / sqrt(head_dim)``.

    Notes
    -----
    Minus infinity (a mask) gives zero; a row of nothing else, one with NaN, and one in which
    `scale` times an infinite x is plus infinity or NaN, is all NaN. Finite rows have the formula's
    values however large the products are.
    Computed in float64 as the exponential of ``scale * (x - max(x))``, which neither overflows
    nor, for small elements, loses the digits that a difference rounded to float32 would. Rows of
    the shorter dtypes whose largest product is near zero need no difference, and take float32 if
    the scale is a power of two.
    Source: Bridle, "Probabilistic Interpretation of Feedforward Classification Network Outputs",
    1990; the maximum is subtracted as in Goodfellow, Bengio and Courville, "Deep Learning", 2016,
    section 4.1.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> tensor_ops.softmax(np.array([[0.0, 1.0, 2.0]], dtype=np.float32)).round(4)
    array([[0.09  , 0.2447, 0.6652]], dtype=float32)
    """
    if x.dtype == WIDE:
        for source, result in row_blocks((x,), (out,)):
            _divide_by_sum(_powers_float64(source, scale), result)
    elif abs(math.frexp(scale)[0]) == 0.5 and scale > 0:
        for source, result in row_blocks((x,), (out,)):
            _softmax_float32(source, scale, result)
    else:
        for source, result in row_blocks((x,), (out,), WIDE):
            _divide_by_sum(_powers(source, scale), result)
    return out


def _softmax_float32(x: Array, scale: float, out: Array) -> None:
    """Do the same in float32 for a scale that is a power of two, so that products are exact.

    A row with its largest product in SAFE needs no maximum subtracted, and so no difference
    rounded: its exponentials neither overflow nor, where the results are normal numbers, lose
    digits. The other rows are computed in float64.
    """
    products = x if scale == 1 else x * np.float32(scale)
    largest = products.max(axis=-1)
    others = ~((largest >= SAFE[0]) & (largest <= SAFE[1]))
    wide = _powers(x[others].astype(WIDE), scale) if others.any() else None
    powers = np.exp(products)
    np.multiply(powers, np.reciprocal(powers.sum(axis=-1, keepdims=True)), out=out)
    if wide is not None:
        out[others] = wide / wide.sum(axis=-1, keepdims=True)


def _divide_by_sum(powers: Array, out: Array) -> None:
    np.divide(powers, powers.sum(axis=-1, keepdims=True), out=out)


def _powers(x: Array, scale: float) -> Array:
    """Return the exponentials of ``scale * (x - x_m)`` with ``scale * x_m`` the row's largest."""
    powers = x - _extreme(x, scale)
    powers *= scale
    return np.exp(powers, out=powers)


def _powers_float64(x: Array, scale: float) -> Array:
    """Return the same with the rounding errors of difference and product compensated."""
    if abs(scale) < 1:  # a difference that overflows may have an ordinary product
        x, scale = x * 0.25, scale * 4
    extreme = _extreme(x, scale)
    difference = x - extreme
    product = difference * scale
    low = product_error(difference, np.float64(scale), product)
    low += scale * difference_error(x, extreme, difference)
    return exp_of_sum(product, low)


def _extreme(x: Array, scale: float) -> Array:
    extreme: Array = (x.max if scale >= 0 else x.min)(axis=-1, keepdims=True)
    return extreme

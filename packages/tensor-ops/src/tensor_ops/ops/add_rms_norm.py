"""Residual addition and root mean square layer normalization in one pass."""

from typing import Any

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics import plain
from tensor_ops.numerics.blocks import compute_dtype, row_blocks
from tensor_ops.numerics.row_statistics import divide_by_rms
from tensor_ops.op.accuracy import rowwise
from tensor_ops.op.arguments import Array, NonNegative, ResidualRows, Rows, RowVector
from tensor_ops.op.samples import WIDE_RANGE, Sample


def _plain(x: Array, residual: Array, weight: Array) -> tuple[Array, Array]:
    total = x + residual
    return plain.rms_norm(total, weight), total


@op(
    results_like=("x", "residual"),
    bounds=rowwise(),
    plain=_plain,
    samples=[
        Sample("eps", lambda draw: (draw.normal(3, 64), draw.normal(3, 64)), {"eps": 1e-2}),
        Sample("eps of zero", lambda draw: (draw.normal(3, 64), draw.normal(3, 64)), {"eps": 0}),
        Sample("sum of zero", lambda draw: (draw.full(2.5, 2, 33), draw.full(-2.5, 2, 33))),
        Sample(
            "sum that rounds", lambda draw: (draw.normal(5, 257, scale=100.0), draw.normal(5, 257))
        ),
        Sample(
            "large squares",
            lambda draw: (draw.normal(4, 4096, scale=1e19), draw.normal(4, 4096, scale=1e19)),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "sum that overflows",
            lambda draw: (draw.full(3e38, 2, 9), draw.full(2e38, 2, 9)),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "small rows",
            lambda draw: (draw.normal(4, 300, scale=1e-25), draw.normal(4, 300, scale=1e-25)),
            {"eps": 0.0},
            WIDE_RANGE,
        ),
        Sample(
            "large weights on small elements",
            lambda draw: (
                draw.spread(4, 300, low=-140, high=40),
                draw.full(0.0, 4, 300),
                draw.spread(300, low=0, high=23),
            ),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "larger weights on smaller elements",
            lambda draw: (
                draw.spread(4, 300, low=-1070, high=60),
                draw.full(0.0, 4, 300),
                draw.spread(300, low=0, high=52),
            ),
            dtypes=("float64",),
        ),
        Sample(
            "subnormal rows",
            lambda draw: (draw.subnormal(4, 300), draw.subnormal(4, 300)),
            {"eps": 0.0},
        ),
        Sample(
            "sum beyond float64",
            lambda draw: (draw.full(1.5e308, 2, 9), draw.full(1.2e308, 2, 9)),
            dtypes=("float64",),
        ),
        Sample(
            "large terms that cancel in float64",
            lambda draw: (draw.cast([[1e300, 1e-300, 0.0]]), draw.cast([[-1e300, 1e-300, 0.0]])),
            {"eps": 0.0},
            ("float64",),
        ),
        Sample(
            "squares below float64",
            lambda draw: (draw.normal(4, 300, scale=1e-200), draw.normal(4, 300, scale=1e-190)),
            {"eps": 0.0},
            ("float64",),
        ),
    ],
)
def add_rms_norm(
    x: Rows,
    residual: ResidualRows,
    weight: RowVector,
    eps: NonNegative = 1e-6,
    *,
    out: Array = None,
    backend: str | None = None,
) -> Any:
    r"""Add a residual, then scale each row to a root mean square of one and by a weight.

    .. math::

        h_i &= x_i + r_i \\
        y_i &= w_i \, \frac{h_i}{\sqrt{\tfrac{1}{n} \sum_j h_j^2 + \epsilon}}

    Parameters
    ----------
    x : array, shape (..., n)
        float32, float16, bfloat16 or float64. Rows lie along the last axis.
    residual : array, shape (..., n)
        In the dtype of `x`, or float32 beside a float16 or bfloat16 `x`.
    weight : array, shape (n,)
        In the dtype of `x`, or float32 beside a float16 or bfloat16 `x`.
    eps : float, optional
        Added to the mean square; finite and not negative.
    out : tuple of two arrays, shape (..., n), optional
        Where y and h go: `x` itself, `residual` itself or memory apart from every input, and
        apart from each other.

    Returns
    -------
    y, h : arrays, shape (..., n)
        The normalized rows in the dtype of `x`, and the sum in the dtype of `residual`; `out` if
        it was given.

    Notes
    -----
    Half types are computed in float32, and y comes from h before it is rounded. A float32
    `residual` keeps h from being rounded in every layer of a model. Rows whose sums or squares
    the dtype cannot hold are computed in float64, scaled by a power of two.
    Errors are bounded for weights of at most 2**23, or 2**52 in float64. A small element, once
    divided by the root mean square, may be subnormal or zero, and a larger weight multiplies the
    error of that.
    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, for y.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> x = np.array([[1.0, 2.0]], dtype=np.float32)
    >>> residual = np.array([[2.0, 2.0]], dtype=np.float32)
    >>> y, h = tensor_ops.add_rms_norm(x, residual, np.ones(2, dtype=np.float32))
    >>> y.round(4)
    array([[0.8485, 1.1314]], dtype=float32)
    >>> h
    array([[3., 4.]], dtype=float32)
    """
    scale = weight.astype(compute_dtype(weight.dtype))
    for source, added, result, total in row_blocks((x, residual), out):
        rows = source + added
        divide_by_rms(rows, eps, result, (source, added), np.add)
        np.multiply(result, scale, out=result)
        total[...] = rows
    return out

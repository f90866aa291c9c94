"""Gradients of root mean square layer normalization."""

from typing import Any

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics import plain
from tensor_ops.numerics.norm_gradient import SAMPLES, norm_gradient, norm_gradient_terms
from tensor_ops.op.accuracy import of_terms
from tensor_ops.op.arguments import Array, NonNegative, Rows, RowVector
from tensor_ops.op.samples import WIDE_RANGE, Sample


@op(
    derivative_of="rms_norm",
    results_like=("grad", "weight"),
    bounds=of_terms(),
    plain=plain.rms_norm_backward,
    terms=lambda grad, x, weight, eps=1e-6: norm_gradient_terms((grad, x), weight, eps)[:2],
    samples=[
        *SAMPLES,
        Sample("eps", lambda draw: (draw.normal(3, 64), draw.normal(3, 64)), {"eps": 1e-2}),
        Sample("rows of zero", lambda draw: (draw.normal(4, 33), draw.full(0.0, 4, 33))),
        Sample(
            "gradients along the rows",
            lambda draw: (draw.full(1.5, 3, 257), draw.full(2.5, 3, 257), draw.full(1.0, 257)),
        ),
        Sample(
            "large gradients that cancel over the rows",
            lambda draw: (
                draw.cast(1e38 * np.array([[1.0], [1], [1], [1], [-1], [-1], [-1], [-1]])),
                draw.full(2.0, 8, 1),
            ),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "large gradients and small weights",
            lambda draw: (
                draw.normal(4, 40, scale=1e37),
                draw.normal(4, 40, scale=1e-15),
                draw.normal(40, scale=1e-20),
            ),
            {"eps": 0.0},
            ("float32", "float64"),
        ),
    ],
)
def rms_norm_backward(
    grad: Rows,
    x: Rows,
    weight: RowVector,
    eps: NonNegative = 1e-6,
    *,
    out: Array = None,
    backend: str | None = None,
) -> Any:
    r"""Return the gradients of `rms_norm` with respect to its rows and its weight.

    .. math::

        s &= 1 / \sqrt{\tfrac{1}{n} \sum_j x_j^2 + \epsilon} \\
        \frac{\partial L}{\partial x_i} &= s \, \Bigl( g_i w_i
        - s x_i \, \tfrac{1}{n} \sum_j g_j w_j \, s x_j \Bigr) \\
        \frac{\partial L}{\partial w_i} &= \sum_\text{rows} g_i \, s x_i

    Parameters
    ----------
    grad : array, shape (..., n)
        The gradient g with respect to the result; float32, float16, bfloat16 or float64. Rows lie
        along the last axis.
    x : array of the shape and dtype of `grad`
        What rms_norm was computed of.
    weight : array, shape (n,)
        In the dtype of `grad`, or float32 beside a float16 or bfloat16 `grad`.
    eps : float, optional
        What was added to the mean square; finite and not negative.
    out : tuple of two arrays, shapes (..., n) and (n,), optional
        Where the results go: `grad` itself, `x` itself or memory apart from every input, and
        apart from each other.

    Returns
    -------
    grad_x : array of the shape and dtype of `grad`
    grad_weight : array of the shape and dtype of `weight`
        Summed over all rows. `out` if it was given.

    Notes
    -----
    Half types are computed in float32, rows whose sums float32 cannot hold in float64, and sums
    over more than a few rows are kept in float64. The terms of a gradient may cancel: its error is
    small relative to their magnitudes, added up.
    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, for the norm.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> grad = np.array([[1.0, 0.0]], dtype=np.float32)
    >>> x = np.array([[3.0, 4.0]], dtype=np.float32)
    >>> grad_x, grad_weight = tensor_ops.rms_norm_backward(grad, x, np.ones(2, dtype=np.float32))
    >>> grad_x.round(4)
    array([[ 0.181 , -0.1358]], dtype=float32)
    >>> grad_weight.round(4)
    array([0.8485, 0.    ], dtype=float32)
    """
    norm_gradient((grad, x), weight, eps, out)
    return out

"""Gradients of residual addition and root mean square layer normalization in one pass."""

from typing import Any

from tensor_ops.dispatch import op
from tensor_ops.numerics import plain
from tensor_ops.numerics.norm_gradient import norm_gradient, norm_gradient_terms
from tensor_ops.op.accuracy import of_terms
from tensor_ops.op.arguments import Array, NonNegative, ResidualRows, Rows, RowVector
from tensor_ops.op.samples import WIDE_RANGE, Sample


def _plain(grad: Array, grad_h: Array, h: Array, weight: Array) -> tuple[Array, Array]:
    of_h, of_weight = plain.rms_norm_backward(grad, h, weight)
    return of_h + grad_h, of_weight


@op(
    derivative_of="add_rms_norm",
    results_like=("h", "weight"),
    bounds=of_terms(),
    plain=_plain,
    terms=lambda grad, grad_h, h, weight, eps=1e-6: norm_gradient_terms(
        (grad, grad_h, h), weight, eps
    )[:2],
    samples=[
        Sample("eps", lambda draw: (draw.normal(3, 64),) * 3, {"eps": 1e-2}),
        Sample("eps of zero", lambda draw: (draw.normal(3, 64),) * 3, {"eps": 0}),
        Sample("many rows", lambda draw: (draw.normal(5000, 24), draw.normal(5000, 24))),
        Sample("gradients of zero", lambda draw: (draw.full(0.0, 40, 33), draw.normal(40, 33))),
        Sample(
            "large squares",
            lambda draw: (
                draw.normal(4, 4096),
                draw.normal(4, 4096, scale=1e-15),
                draw.normal(4, 4096, scale=1e19),
            ),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "large gradients of the sum",
            lambda draw: (draw.normal(4, 40), draw.full(3e38, 4, 40), draw.normal(4, 40)),
            dtypes=WIDE_RANGE,
        ),
    ],
)
def add_rms_norm_backward(
    grad: Rows,
    grad_h: ResidualRows,
    h: ResidualRows,
    weight: RowVector,
    eps: NonNegative = 1e-6,
    *,
    out: Array = None,
    backend: str | None = None,
) -> Any:
    r"""Return the gradients of `add_rms_norm` with respect to both terms of its sum and its weight.

    .. math::

        s &= 1 / \sqrt{\tfrac{1}{n} \sum_j h_j^2 + \epsilon} \\
        \frac{\partial L}{\partial x_i} = \frac{\partial L}{\partial r_i} &= s \, \Bigl( g_i w_i
        - s h_i \, \tfrac{1}{n} \sum_j g_j w_j \, s h_j \Bigr)
        + \frac{\partial L}{\partial h_i} \\
        \frac{\partial L}{\partial w_i} &= \sum_\text{rows} g_i \, s h_i

    Parameters
    ----------
    grad : array, shape (..., n)
        The gradient g with respect to y, the normalized rows; float32, float16, bfloat16 or
        float64. Rows lie along the last axis.
    grad_h : array of the shape of `grad`
        The gradient with respect to h, the sum: in the dtype of `grad`, or float32 beside a
        float16 or bfloat16 `grad`.
    h : array of the shape of `grad`, in the dtype of `grad_h`
        The sum that add_rms_norm has returned.
    weight : array, shape (n,)
        In the dtype of `grad`, or float32 beside a float16 or bfloat16 `grad`.
    eps : float, optional
        What was added to the mean square; finite and not negative.
    out : tuple of two arrays, shapes (..., n) and (n,), optional
        Where the results go: `grad_h` itself, `h` itself or memory apart from every input, and
        apart from each other.

    Returns
    -------
    grad_sum : array of the shape and dtype of `h`
        The gradient with respect to either term of the sum.
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
    >>> grad, grad_h = np.array([[[1.0, 0.0]], [[0.5, 0.5]]], dtype=np.float32)
    >>> h, weight = np.array([[3.0, 4.0]], dtype=np.float32), np.ones(2, dtype=np.float32)
    >>> grad_sum, grad_weight = tensor_ops.add_rms_norm_backward(grad, grad_h, h, weight)
    >>> grad_sum.round(4)
    array([[0.681 , 0.3642]], dtype=float32)
    >>> grad_weight.round(4)
    array([0.8485, 0.    ], dtype=float32)
    """
    norm_gradient((grad, grad_h, h), weight, eps, out)
    return out

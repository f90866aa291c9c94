"""Gradients of layer normalization."""

from typing import Any

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics.norm_gradient import SAMPLES, norm_gradient, norm_gradient_terms
from tensor_ops.op.accuracy import of_terms
from tensor_ops.op.arguments import Array, NonNegative, Rows, RowVector
from tensor_ops.op.samples import WIDE_RANGE, Sample


def _plain(grad: Array, x: Array, weight: Array) -> tuple[Array, Array, Array]:
    centred = x - x.mean(axis=-1, keepdims=True)
    inverse = 1 / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)
    normalized, along = centred * inverse, grad * weight
    part = normalized * np.mean(along * normalized, axis=-1, keepdims=True)
    of_x = inverse * (along - along.mean(axis=-1, keepdims=True) - part)
    rows = (-1, x.shape[-1])
    of_weight = (grad * normalized).reshape(rows).sum(axis=0)
    return of_x, of_weight, grad.reshape(rows).sum(axis=0)


@op(
    derivative_of="layer_norm",
    results_like=("grad", "weight", "weight"),
    bounds=of_terms(),
    plain=_plain,
    terms=lambda grad, x, weight, eps=1e-5: norm_gradient_terms(
        (grad, x), weight, eps, centered=True
    ),
    samples=[
        *SAMPLES,
        Sample("eps", lambda draw: (draw.normal(3, 64), draw.normal(3, 64)), {"eps": 1.0}),
        Sample("constant rows", lambda draw: (draw.normal(4, 33), draw.full(0.1, 4, 33))),
        Sample(
            "constant rows whose squares are beyond float64",
            lambda draw: (draw.normal(4, 33), draw.full(1e200, 4, 33)),
            dtypes=("float64",),
        ),
        Sample(
            "constant rows whose sums are beyond float64",
            lambda draw: (draw.normal(4, 33), draw.full(np.finfo(np.float64).max, 4, 33)),
            dtypes=("float64",),
        ),
        Sample(
            "constant rows, small eps",
            lambda draw: (draw.normal(4, 33), draw.full(2.0, 4, 33)),
            {"eps": 1e-300},
            ("float64",),
        ),
        Sample("one column", lambda draw: (draw.normal(5, 1), draw.normal(5, 1))),
        Sample(
            "mean far from zero",
            lambda draw: (
                draw.normal(5, 1000),
                draw.cast(1e4 + draw.random.standard_normal((5, 1000))),
            ),
            dtypes=("float32", "float64"),
        ),
        Sample(
            "first elements far from the mean",
            lambda draw: (
                draw.normal(3, 500),
                draw.cast(
                    np.where(np.arange(500) < 64, 1e3, draw.random.standard_normal((3, 500)))
                ),
            ),
            dtypes=("float32", "float64"),
        ),
        Sample(
            "sum that overflows",
            lambda draw: (
                draw.normal(3, 100),
                draw.cast(3e38 * draw.random.uniform(-1, 1, (3, 100))),
            ),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "large gradients that cancel over the rows",
            lambda draw: (
                draw.cast(1e38 * np.outer([1, 1, 1, 1, -1, -1, -1, -1], [1, -1])),
                draw.cast(np.tile([[2.0, 4.0]], (8, 1))),
            ),
            dtypes=WIDE_RANGE,
        ),
    ],
)
def layer_norm_backward(
    grad: Rows,
    x: Rows,
    weight: RowVector,
    eps: NonNegative = 1e-5,
    *,
    out: Array = None,
    backend: str | None = None,
) -> Any:
    r"""Return the gradients of `layer_norm` with respect to its rows, weight and bias.

    .. math::

        s &= 1 / \sqrt{\tfrac{1}{n} \sum_j (x_j - \mu)^2 + \epsilon}, \quad
        \hat{x}_i = s (x_i - \mu), \quad \mu = \tfrac{1}{n} \sum_j x_j \\
        \frac{\partial L}{\partial x_i} &= s \, \Bigl( g_i w_i
        - \tfrac{1}{n} \sum_j g_j w_j
        - \hat{x}_i \, \tfrac{1}{n} \sum_j g_j w_j \hat{x}_j \Bigr) \\
        \frac{\partial L}{\partial w_i} &= \sum_\text{rows} g_i \hat{x}_i, \quad
        \frac{\partial L}{\partial b_i} = \sum_\text{rows} g_i

    Parameters
    ----------
    grad : array, shape (..., n)
        The gradient g with respect to the result; float32, float16, bfloat16 or float64. Rows lie
        along the last axis.
    x : array of the shape and dtype of `grad`
        What layer_norm was computed of.
    weight : array, shape (n,)
        In the dtype of `grad`, or float32 beside a float16 or bfloat16 `grad`.
    eps : float, optional
        What was added to the variance; finite and not negative.
    out : tuple of three arrays, shapes (..., n), (n,) and (n,), optional
        Where the results go: `grad` itself, `x` itself or memory apart from every input, and
        apart from each other.

    Returns
    -------
    grad_x : array of the shape and dtype of `grad`
    grad_weight, grad_bias : arrays of the shape and dtype of `weight`
        Summed over all rows. `out` if it was given.

    Notes
    -----
    Half types are computed in float32, rows whose sums float32 cannot hold in float64, and sums
    over more than a few rows are kept in float64. The terms of a gradient may cancel: its error is
    small relative to their magnitudes, added up.
    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016, for the norm.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> grad = np.array([[1.0, 0.0, 0.0]], dtype=np.float32)
    >>> x = np.array([[1.0, 2.0, 6.0]], dtype=np.float32)
    >>> weight = np.ones(3, dtype=np.float32)
    >>> grad_x, grad_weight, grad_bias = tensor_ops.layer_norm_backward(grad, x, weight)
    >>> grad_x.round(4)
    array([[ 0.1763, -0.2204,  0.0441]], dtype=float32)
    >>> grad_weight.round(4)
    array([-0.9258,  0.    ,  0.    ], dtype=float32)
    >>> grad_bias
    array([1., 0., 0.], dtype=float32)
    """
    norm_gradient((grad, x), weight, eps, out, centered=True)
    return out

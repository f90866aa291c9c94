"""Gradient of the softmax of rows."""

from typing import Any

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics.blocks import WIDE, row_blocks
from tensor_ops.op.accuracy import of_terms
from tensor_ops.op.arguments import Array, Finite, Rows
from tensor_ops.op.samples import WIDE_RANGE, Draw, Sample


def _plain(grad: Array, y: Array) -> Array:
    return y * (grad - (grad * y).sum(axis=-1, keepdims=True))


def _terms(grad: Array, y: Array, scale: float = 1.0) -> Array:
    sums = np.sum(abs(grad * y), axis=-1, keepdims=True)
    terms: Array = abs(y * scale) * abs(grad) + abs(y * scale) * sums
    return terms


def _probabilities(draw: Draw, *shape: int) -> Array:
    powers = np.exp(draw.random.standard_normal(shape) * 3)
    return draw.cast(powers / powers.sum(axis=-1, keepdims=True))


@op(
    derivative_of="softmax",
    plain=_plain,
    bounds=of_terms(),
    terms=_terms,
    samples=[
        Sample("scale", lambda draw: (draw.normal(3, 64), _probabilities(draw, 3, 64), 0.125)),
        Sample(
            "negative scale", lambda draw: (draw.normal(3, 64), _probabilities(draw, 3, 64), -0.7)
        ),
        Sample(
            "scale of zero", lambda draw: (draw.normal(3, 64), _probabilities(draw, 3, 64), 0.0)
        ),
        Sample("long rows", lambda draw: (draw.normal(2, 9001), _probabilities(draw, 2, 9001))),
        Sample("equal gradients", lambda draw: (draw.full(3.0, 2, 33), draw.full(1 / 33, 2, 33))),
        Sample("one column", lambda draw: (draw.normal(5, 1), draw.full(1.0, 5, 1))),
        Sample(
            "large gradients",
            lambda draw: (draw.spread(4, 50, low=100, high=126), _probabilities(draw, 4, 50)),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "scale that float32 has no room for",
            lambda draw: (draw.normal(4, 50), _probabilities(draw, 4, 50) * 0, 1e100),
        ),
        Sample(
            "gradients beyond float64",
            lambda draw: (
                draw.cast(1e308 * draw.random.uniform(-1, 1, (3, 100))),
                _probabilities(draw, 3, 100),
            ),
            dtypes=("float64",),
        ),
    ],
)
def softmax_backward(
    grad: Rows, y: Rows, scale: Finite = 1.0, *, out: Array = None, backend: str | None = None
) -> Any:
    r"""Return the gradient of `softmax` with respect to its input, from its result.

    .. math::

        \frac{\partial L}{\partial x_i} = s \, y_i \, \Bigl(
        \frac{\partial L}{\partial y_i} - \sum_j \frac{\partial L}{\partial y_j} \, y_j \Bigr)

    Parameters
    ----------
    grad : array, shape (..., n)
        The gradient with respect to the result y; float32, float16, bfloat16 or float64. Rows lie
        along the last axis.
    y : array of the shape and dtype of `grad`
        What softmax has returned: positive numbers whose sum along each row is one.
    scale : float, optional
        Finite; what has multiplied x.

    Notes
    -----
    Half types are computed in float32, and rows whose numbers float32 has no room for in float64.
    The terms may cancel: the error is small relative to their magnitudes, added up.
    Source: Bridle, "Probabilistic Interpretation of Feedforward Classification Network Outputs",
    1990.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> grad = np.array([[1.0, 0.0, 0.0]], dtype=np.float32)
    >>> y = tensor_ops.softmax(np.array([[0.0, 1.0, 2.0]], dtype=np.float32))
    >>> tensor_ops.softmax_backward(grad, y).round(4)
    array([[ 0.0819, -0.022 , -0.0599]], dtype=float32)
    """
    for gradient, probabilities, result in row_blocks((grad, y), (out,), WIDE):
        # A sum of large float64 numbers stays finite.
        largest = np.abs(gradient).max(axis=-1, keepdims=True)
        part = np.where(largest > 2.0**900, 2.0**-200, 1.0)
        near = gradient * part
        near -= np.sum(near * probabilities, axis=-1, keepdims=True)
        near *= probabilities
        result[...] = near * scale / part
    return out

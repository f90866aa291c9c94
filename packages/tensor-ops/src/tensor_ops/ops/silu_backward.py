"""Gradient of the sigmoid linear unit."""

from typing import Any

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics.blocks import element_blocks
from tensor_ops.numerics.sigmoid import silu_derivative_terms_times, silu_derivative_times
from tensor_ops.op.accuracy import of_terms
from tensor_ops.op.arguments import Array, Elements
from tensor_ops.op.samples import WIDE_RANGE, Sample


def _plain(grad: Array, x: Array) -> Array:
    sigmoid = 1 / (1 + np.exp(-x))
    return grad * sigmoid * (1 + x * (1 - sigmoid))


@op(
    derivative_of="silu",
    plain=_plain,
    bounds=of_terms(),
    terms=lambda grad, x: silu_derivative_terms_times(x, abs(grad)),
    samples=[
        Sample(
            "zeros and infinities",
            lambda draw: (
                draw.cast([1.0, -1.0, 1.0, -1.0, 1.0, 2.0, 0.0, -np.inf]),
                draw.cast([-0.0, 0.0, -np.inf, -np.inf, np.inf, np.inf, np.inf, -200]),
            ),
        ),
        Sample("tails", lambda draw: (draw.normal(2003), draw.cast(np.linspace(-110, 110, 2003)))),
        Sample("far tails", lambda draw: (draw.normal(257), draw.spread(257, low=4, high=15))),
        Sample(
            "large gradients in the tail",
            lambda draw: (
                draw.spread(257, low=100, high=127),
                draw.cast(np.linspace(-170, -80, 257)),
            ),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "where the derivative is zero",
            lambda draw: (draw.normal(257), draw.cast(np.linspace(-1.2786, -1.2783, 257))),
        ),
    ],
)
def silu_backward(
    grad: Elements, x: Elements, *, out: Array = None, backend: str | None = None
) -> Any:
    r"""Return the gradient of `silu` with respect to its input.

    .. math::

        \frac{\partial L}{\partial x} =
        \frac{\partial L}{\partial y} \, \sigma(x) \, (1 + x \, (1 - \sigma(x)))

    Parameters
    ----------
    grad : array, any shape
        The gradient with respect to the result y; float32, float16, bfloat16 or float64.
    x : array of the shape and dtype of `grad`
        What silu was computed of.

    Notes
    -----
    At minus infinity the derivative is zero, the limit.
    Half types are computed in float32. The two terms of the derivative cancel near x = -1.28: its
    error is small relative to their magnitudes.
    Source: Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units for neural network function
    approximation in reinforcement learning", 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> grad, x = np.ones(3, dtype=np.float32), np.array([-1.0, 0.0, 1.0], dtype=np.float32)
    >>> tensor_ops.silu_backward(grad, x).round(4)
    array([0.0723, 0.5   , 0.9277], dtype=float32)
    """
    for gradient, source, result in element_blocks((grad, x), (out,)):
        silu_derivative_times(source, gradient, out=result)
    return out

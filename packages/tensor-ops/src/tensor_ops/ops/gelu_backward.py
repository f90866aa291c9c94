"""Gradient of the Gaussian error linear unit."""

from typing import Any, Literal

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics import plain
from tensor_ops.numerics.blocks import WIDE, element_blocks
from tensor_ops.numerics.normal_distribution import (
    gelu_derivative_terms_times,
    gelu_derivative_times,
)
from tensor_ops.op.accuracy import Bound, of_terms
from tensor_ops.op.arguments import DTYPES, Array, Elements
from tensor_ops.op.samples import WIDE_RANGE, Draw, Sample

ALL = tuple(DTYPES)


def _terms(grad: Array, x: Array, approximate: str = "tanh") -> Array:
    return gelu_derivative_terms_times(x, abs(grad), approximate)


def _zeros_and_infinities(draw: Draw) -> tuple[Array, Array]:
    grad = [1.0, -1.0, 1.0, -1.0, 1.0, 2.0, 0.0, -np.inf]
    return draw.cast(grad), draw.cast([-0.0, 0.0, -np.inf, -np.inf, np.inf, np.inf, np.inf, -20])


def _tails(draw: Draw) -> tuple[Array, Array]:
    return draw.normal(2003), draw.cast(np.linspace(-16, 16, 2003))


def _far_tails(draw: Draw) -> tuple[Array, Array]:
    return draw.normal(257), draw.spread(257, low=3, high=15)


def _large_gradients(draw: Draw) -> tuple[Array, Array]:
    return draw.spread(257, low=100, high=127), draw.cast(np.linspace(-20, -8, 257))


@op(
    derivative_of="gelu",
    plain=plain.gelu_backward,
    bounds=of_terms(),
    # PyTorch has no more than float64: in the tail, the error of rounding the exponent, which goes
    # up to 745, is that of the result.
    wider_bounds={("torch", "float64"): Bound(1e-12, "terms")},
    terms=_terms,
    samples=[
        Sample(name + suffix, make, {"approximate": approximate}, dtypes)
        for suffix, approximate in (("", "tanh"), (", erf", "none"))
        for name, make, dtypes in (
            ("zeros and infinities", _zeros_and_infinities, ALL),
            ("tails", _tails, ALL),
            ("far tails", _far_tails, ALL),
            ("large gradients in the tail", _large_gradients, WIDE_RANGE),
        )
    ]
    + [
        Sample(
            "where the derivative is zero",
            lambda draw: (draw.normal(257), draw.cast(np.linspace(-0.7525, -0.7515, 257))),
        )
    ],
)
def gelu_backward(
    grad: Elements,
    x: Elements,
    approximate: Literal["tanh", "none"] = "tanh",
    *,
    out: Array = None,
    backend: str | None = None,
) -> Any:
    r"""Return the gradient of `gelu` with respect to its input.

    .. math::

        \text{none:} \quad & \frac{\partial L}{\partial x} =
            \frac{\partial L}{\partial y} \, (\Phi(x) + x \, \phi(x)) \\
        \text{tanh:} \quad & \frac{\partial L}{\partial x} =
            \frac{\partial L}{\partial y} \, \sigma(w) \, (1 + x \, w' \, (1 - \sigma(w))),
            \qquad w = \sqrt{8/\pi} \, (x + 0.044715 \, x^3)

    with the distribution function and the density of the normal distribution, and the logistic
    sigmoid.

    Parameters
    ----------
    grad : array, any shape
        The gradient with respect to the result y; float32, float16, bfloat16 or float64.
    x : array of the shape and dtype of `grad`
        What gelu was computed of.
    approximate : {"tanh", "none"}, optional
        The form that was computed.

    Notes
    -----
    At minus infinity the derivative is zero, the limit.
    Computed in float64. The two terms of the derivative cancel near x = -0.75: its error is small
    relative to their magnitudes.
    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> grad, x = np.ones(3, dtype=np.float32), np.array([-1.0, 0.0, 1.0], dtype=np.float32)
    >>> tensor_ops.gelu_backward(grad, x).round(4)
    array([-0.083,  0.5  ,  1.083], dtype=float32)
    >>> tensor_ops.gelu_backward(grad, x, approximate="none").round(4)
    array([-0.0833,  0.5   ,  1.0833], dtype=float32)
    """
    for gradient, source, result in element_blocks((grad, x), (out,), WIDE):
        result[...] = gelu_derivative_times(source, gradient, approximate)
    return out

"""Gradients of the sigmoid linear unit times a second input."""

from typing import Any

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics.blocks import WIDE, element_blocks
from tensor_ops.numerics.gated_derivative import slope_times
from tensor_ops.numerics.sigmoid import silu_derivative_terms_times, silu_derivative_times, silu_of
from tensor_ops.op.accuracy import of_terms
from tensor_ops.op.arguments import Array, Elements
from tensor_ops.op.samples import WIDE_RANGE, Sample


def _plain(grad: Array, gate: Array, up: Array) -> tuple[Array, Array]:
    sigmoid = 1 / (1 + np.exp(-gate))
    return grad * up * sigmoid * (1 + gate * (1 - sigmoid)), grad * gate * sigmoid


def _terms(grad: Array, gate: Array, up: Array) -> tuple[Array, Array]:
    grad, gate, up = grad[None], gate[None], up[None]  # there may be no axis
    of_gate = slope_times(silu_derivative_terms_times, gate, grad, up)
    return abs(of_gate[0]), abs(silu_of(gate, grad)[0])


@op(
    derivative_of="silu_mul",
    results_like=("gate", "up"),
    plain=_plain,
    bounds=of_terms(),
    terms=_terms,
    samples=[
        Sample(
            "zeros and infinities",
            lambda draw: (
                draw.cast([1.0, -1.0, 1.0, -1.0, 1.0, 2.0, 0.0, -np.inf]),
                draw.cast([-0.0, 0.0, -np.inf, -np.inf, np.inf, np.inf, np.inf, -200]),
                draw.cast([1.0, 2.0, 1.0, -1.0, -2.0, 1.0, 1.0, 1.0]),
            ),
        ),
        Sample("tails", lambda draw: (draw.normal(2003), draw.cast(np.linspace(-110, 110, 2003)))),
        Sample("far tails", lambda draw: (draw.normal(257), draw.spread(257, low=4, high=15))),
        Sample(
            "large factors in the tail",
            lambda draw: (
                draw.spread(257, low=60, high=100),
                draw.cast(np.linspace(-170, -80, 257)),
                draw.spread(257, low=60, high=100),
            ),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "factors whose product is beyond float64",
            lambda draw: (
                draw.spread(257, low=500, high=600),
                draw.cast(np.linspace(-1500, -250, 257)),
                draw.spread(257, low=525, high=600),
            ),
            dtypes=("float64",),
            not_for=("torch",),
        ),
        Sample(
            "largest factor above the zero of the derivative",
            lambda draw: (
                draw.spread(257, low=-300, high=-1),
                draw.cast(np.linspace(1.3, 30, 257)),
                draw.full(np.finfo(np.float64).max, 257),
            ),
            dtypes=("float64",),
        ),
        Sample(
            "where the derivative is zero",
            lambda draw: (draw.normal(257), draw.cast(np.linspace(-1.2786, -1.2783, 257))),
        ),
    ],
)
def silu_mul_backward(
    grad: Elements,
    gate: Elements,
    up: Elements,
    *,
    out: Array = None,
    backend: str | None = None,
) -> Any:
    r"""Return the gradients of `silu_mul` with respect to `gate` and `up`.

    .. math::

        \frac{\partial L}{\partial g} &= \frac{\partial L}{\partial y} \, u \,
        \sigma(g) \, (1 + g \, (1 - \sigma(g))) \\
        \frac{\partial L}{\partial u} &= \frac{\partial L}{\partial y} \, g \, \sigma(g)

    Parameters
    ----------
    grad : array, any shape
        The gradient with respect to the result y; float32, float16, bfloat16 or float64.
    gate, up : arrays of the shape and dtype of `grad`
        What silu_mul was computed of.
    out : tuple of two arrays of the shape of `grad`, optional
        Where the results go: any input itself or memory apart from all of them, and apart from
        each other.

    Returns
    -------
    grad_gate, grad_up : arrays of the shape and dtype of `grad`
        `out` if it was given.

    Notes
    -----
    Half types are computed in float32 or wider. The two terms of the derivative cancel near
    g = -1.28: its error is small relative to their magnitudes.
    Source: Shazeer, "GLU Variants Improve Transformer", 2020, for the product.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> gate, up = np.array([[-1.0, 0.0, 1.0], [2.0, 2.0, 2.0]], dtype=np.float32)
    >>> grad_gate, grad_up = tensor_ops.silu_mul_backward(np.ones(3, dtype=np.float32), gate, up)
    >>> grad_gate.round(4)
    array([0.1447, 1.    , 1.8553], dtype=float32)
    >>> grad_up.round(4)
    array([-0.2689,  0.    ,  0.7311], dtype=float32)
    """
    for gradient, source, factor, of_gate, of_up in element_blocks((grad, gate, up), out, WIDE):
        slopes = slope_times(silu_derivative_times, source, gradient, factor)
        of_up[...] = silu_of(source, gradient)
        of_gate[...] = slopes
    return out

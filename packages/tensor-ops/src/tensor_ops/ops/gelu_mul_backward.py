"""Gradients of the Gaussian error linear unit times a second input."""

from functools import partial
from typing import Any, Literal

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics import plain
from tensor_ops.numerics.blocks import WIDE, element_blocks
from tensor_ops.numerics.gated_derivative import slope_times
from tensor_ops.numerics.normal_distribution import (
    gelu_derivative_terms_times,
    gelu_derivative_times,
    gelu_times,
)
from tensor_ops.op.accuracy import Bound, of_terms
from tensor_ops.op.arguments import Array, Elements
from tensor_ops.op.samples import WIDE_RANGE, Draw, Sample

# The dtypes and `not_for` of samples in which steps of PyTorch leave the range of float64.
BEYOND_TORCH = ("float64",), ("torch",)


def _plain(grad: Array, gate: Array, up: Array, approximate: str) -> tuple[Array, Array]:
    return plain.gelu_backward(grad * up, gate, approximate), grad * plain.gelu(gate, approximate)


def _terms(grad: Array, gate: Array, up: Array, approximate: str = "tanh") -> tuple[Array, Array]:
    grad, gate, up = grad[None], gate[None], up[None]  # there may be no axis
    terms_times = partial(gelu_derivative_terms_times, approximate=approximate)
    of_gate = slope_times(terms_times, gate, grad, up)
    return abs(of_gate[0]), abs(gelu_times(gate, grad, approximate, gate.dtype)[0])


def _tails(draw: Draw) -> tuple[Array, Array]:
    return draw.normal(2003), draw.cast(np.linspace(-16, 16, 2003))


def _far_tails(draw: Draw) -> tuple[Array, Array]:
    return draw.normal(257), draw.spread(257, low=3, high=15)


def _large_factors(draw: Draw) -> tuple[Array, Array, Array]:
    grad, up = draw.spread(2, 257, low=60, high=100)
    return grad, draw.cast(np.linspace(-20, -12, 257)), up


def _product_beyond_float64(draw: Draw) -> tuple[Array, Array, Array]:
    grad, up = draw.spread(2, 257, low=525, high=600)
    # Half of the gates are where the form by tanh is tiny, half where the other is.
    gate = np.concatenate([np.linspace(-21, -13, 128), np.linspace(-37, -23, 129)])
    return grad, draw.cast(gate), up


def _largest_factor(draw: Draw) -> tuple[Array, Array, Array]:
    grad, up = draw.spread(257, low=-300, high=-1), draw.full(np.finfo(np.float64).max, 257)
    return grad, draw.cast(np.linspace(0.8, 9, 257)), up


def _far_gradients(draw: Draw) -> tuple[Array, Array]:
    gate = np.concatenate([np.linspace(-26, -18, 128), np.linspace(-53, -36, 129)])
    return draw.spread(257, low=800, high=1020), draw.cast(gate)


@op(
    derivative_of="gelu_mul",
    results_like=("gate", "up"),
    plain=_plain,
    bounds=of_terms(),
    # PyTorch has no more than float64: in the tail, the error of rounding the exponent, which goes
    # up to 745, is that of the result.
    wider_bounds={("torch", "float64"): Bound(1e-12, "terms")},
    terms=_terms,
    samples=[
        Sample(name + suffix, make, {"approximate": approximate}, *limits)
        for suffix, approximate in (("", "tanh"), (", erf", "none"))
        for name, make, *limits in (
            ("tails", _tails),
            ("far tails", _far_tails),
            ("large factors in the tail", _large_factors, WIDE_RANGE),
            ("factors whose product is beyond float64", _product_beyond_float64, *BEYOND_TORCH),
            ("largest factor above the zero of the derivative", _largest_factor, ("float64",)),
            ("gradients that make up for the tail", _far_gradients, *BEYOND_TORCH),
        )
    ],
)
def gelu_mul_backward(
    grad: Elements,
    gate: Elements,
    up: Elements,
    approximate: Literal["tanh", "none"] = "tanh",
    *,
    out: Array = None,
    backend: str | None = None,
) -> Any:
    r"""Return the gradients of `gelu_mul` with respect to `gate` and `up`.

    .. math::

        \frac{\partial L}{\partial g} &= \frac{\partial L}{\partial y} \, u \,
        \operatorname{gelu}'(g) \\
        \frac{\partial L}{\partial u} &= \frac{\partial L}{\partial y} \, \operatorname{gelu}(g)

    with the derivative of :func:`tensor_ops.gelu_backward`.

    Parameters
    ----------
    grad : array, any shape
        The gradient with respect to the result y; float32, float16, bfloat16 or float64.
    gate, up : arrays of the shape and dtype of `grad`
        What gelu_mul was computed of.
    approximate : {"tanh", "none"}, optional
        The approximation by tanh, or the normal distribution function itself.
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
    g = -0.75: its error is small relative to their magnitudes.
    Source: Shazeer, "GLU Variants Improve Transformer", 2020, for the product.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> gate, up = np.array([[-1.0, 0.0, 1.0], [2.0, 2.0, 2.0]], dtype=np.float32)
    >>> grad_gate, grad_up = tensor_ops.gelu_mul_backward(np.ones(3, dtype=np.float32), gate, up)
    >>> grad_gate.round(4)
    array([-0.1659,  1.    ,  2.1659], dtype=float32)
    >>> grad_up.round(4)
    array([-0.1588,  0.    ,  0.8412], dtype=float32)
    """
    blocks = element_blocks((grad, gate, up), out, WIDE)
    for gradient, source, factor, of_gate, of_up in blocks:
        slope = partial(gelu_derivative_times, approximate=approximate)
        slopes = slope_times(slope, source, gradient, factor)
        of_up[...] = gelu_times(source, gradient, approximate, gate.dtype)
        of_gate[...] = slopes
    return out

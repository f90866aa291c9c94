"""Gaussian error linear unit times a second input: the product inside GeGLU."""

from typing import Any, Literal

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics import plain
from tensor_ops.numerics.blocks import WIDE, element_blocks
from tensor_ops.numerics.normal_distribution import gelu_times
from tensor_ops.op.accuracy import Bound, elementwise
from tensor_ops.op.arguments import Array, Elements
from tensor_ops.op.samples import WIDE_RANGE, Sample


@op(
    bounds=elementwise(signed_zeros=True),
    plain=lambda gate, up, approximate: plain.gelu(gate, approximate) * up,
    # PyTorch has no more than float64: in the tail, the error of rounding the exponent, which goes
    # up to 745, is that of the result.
    wider_bounds={("torch", "float64"): Bound(4096, signed_zeros=True)},
    samples=[
        Sample(
            "zeros and infinities",
            lambda draw: (
                draw.cast([-0.0, 0.0, -0.0, 0.0, -np.inf, -np.inf, np.inf, -200]),
                draw.cast([1.0, 1.0, -1.0, -1.0, 1.0, -1.0, -2.0, -1.0]),
            ),
        ),
        Sample("erf", lambda draw: (draw.normal(5, 67), draw.normal(5, 67), "none")),
        Sample("tails", lambda draw: (draw.cast(np.linspace(-16, 16, 2003)), draw.normal(2003))),
        Sample(
            "tails, erf",
            lambda draw: (draw.cast(np.linspace(-16, 16, 2003)), draw.normal(2003), "none"),
        ),
        Sample("far tails", lambda draw: (draw.spread(257, low=3, high=15), draw.normal(257))),
        Sample(
            "tail times large",
            lambda draw: (
                draw.cast(np.linspace(-12, -8, 257)),
                draw.spread(257, low=100, high=127),
            ),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "tail times large, erf",
            lambda draw: (
                draw.cast(np.linspace(-18, -10, 257)),
                draw.spread(257, low=100, high=127),
                "none",
            ),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "tail times larger",
            lambda draw: (
                draw.cast(np.linspace(-26, -18, 257)),
                draw.spread(257, low=800, high=1020),
            ),
            dtypes=("float64",),
            not_for=("torch",),
        ),
        Sample(
            "tail times larger, erf",
            lambda draw: (
                draw.cast(np.linspace(-53, -36, 257)),
                draw.spread(257, low=800, high=1020),
                "none",
            ),
            dtypes=("float64",),
            not_for=("torch",),
        ),
        Sample(
            "near zero",
            lambda draw: (draw.spread(257, low=-14, high=-4), draw.spread(257, low=-4, high=4)),
        ),
    ],
)
def gelu_mul(
    gate: Elements,
    up: Elements,
    approximate: Literal["tanh", "none"] = "tanh",
    *,
    out: Array = None,
    backend: str | None = None,
) -> Any:
    r"""Multiply `up` by the Gaussian error linear unit of `gate`.

    .. math:: y = \operatorname{gelu}(g) \, u

    with `gelu` as in :func:`tensor_ops.gelu`:

    .. math::

        \text{tanh:} \quad & \tfrac{x}{2} \left(1 + \tanh\left(\sqrt{2/\pi} \,
            (x + 0.044715 \, x^3)\right)\right) \\
        \text{none:} \quad & x \, \Phi(x) = \tfrac{x}{2}
            \left(1 + \operatorname{erf}(x / \sqrt{2})\right)

    Parameters
    ----------
    gate : array, any shape
        float32, float16, bfloat16 or float64.
    up : array of the shape and dtype of `gate`
    approximate : {"tanh", "none"}, optional
        The approximation by tanh, or the normal distribution function itself.

    Notes
    -----
    Zero times infinity is NaN, as in any product.
    Computed in float64: a product with a large `up` is right even where gelu(gate) alone is
    smaller than the dtype can hold.
    Source: Shazeer, "GLU Variants Improve Transformer", 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> gate = np.array([-1.0, 0.0, 1.0], dtype=np.float32)
    >>> up = np.array([2.0, 3.0, 4.0], dtype=np.float32)
    >>> tensor_ops.gelu_mul(gate, up).round(4)
    array([-0.3176,  0.    ,  3.3648], dtype=float32)
    >>> tensor_ops.gelu_mul(gate, up, approximate="none").round(4)
    array([-0.3173,  0.    ,  3.3654], dtype=float32)
    """
    for source, factor, result in element_blocks((gate, up), (out,), WIDE):
        result[...] = gelu_times(source, factor, approximate, gate.dtype)
    return out

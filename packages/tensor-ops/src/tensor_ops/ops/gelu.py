"""Gaussian error linear unit."""

from typing import Any, Literal

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics import plain
from tensor_ops.numerics.blocks import WIDE, element_blocks
from tensor_ops.numerics.normal_distribution import gelu_of
from tensor_ops.op.accuracy import Bound, elementwise
from tensor_ops.op.arguments import Array, Elements
from tensor_ops.op.samples import WIDE_RANGE, Sample


@op(
    bounds=elementwise(signed_zeros=True),
    plain=plain.gelu,
    # PyTorch has no more than float64: in the tail, the error of rounding the exponent, which goes
    # up to 745, is that of the result.
    wider_bounds={("torch", "float64"): Bound(4096, signed_zeros=True)},
    samples=[
        Sample("zeros and infinities", lambda draw: draw.cast([-0.0, 0.0, -np.inf, np.inf])),
        Sample("erf", lambda draw: (draw.normal(5, 67, scale=3.0), "none")),
        Sample("tails", lambda draw: draw.cast(np.linspace(-16, 16, 2003))),
        Sample("tails, erf", lambda draw: (draw.cast(np.linspace(-16, 16, 2003)), "none")),
        Sample("far tails", lambda draw: draw.spread(257, low=3, high=15)),
        Sample("far tails, erf", lambda draw: (draw.spread(257, low=3, high=15), "none")),
        Sample(
            "cubes that overflow",
            lambda draw: draw.spread(257, low=40, high=127),
            dtypes=WIDE_RANGE,
        ),
        Sample("near zero", lambda draw: draw.spread(257, low=-14, high=-4)),
        Sample("near zero, erf", lambda draw: (draw.spread(257, low=-14, high=-4), "none")),
    ],
)
def gelu(
    x: Elements,
    approximate: Literal["tanh", "none"] = "tanh",
    *,
    out: Array = None,
    backend: str | None = None,
) -> Any:
    r"""Multiply each element by the normal distribution function at it, or by its approximation.

    .. math::

        \text{tanh:} \quad & \tfrac{x}{2} \left(1 + \tanh\left(\sqrt{2/\pi} \,
            (x + 0.044715 \, x^3)\right)\right) \\
        \text{none:} \quad & x \, \Phi(x) = \tfrac{x}{2}
            \left(1 + \operatorname{erf}(x / \sqrt{2})\right)

    Parameters
    ----------
    x : array, any shape
        float32, float16, bfloat16 or float64.
    approximate : {"tanh", "none"}, optional
        The approximation by tanh, or the distribution function itself.

    Notes
    -----
    The limit at minus infinity is -0.0.
    Computed in float64, the tanh as a sigmoid: rounding the argument to float32 would cost the
    negative tail up to thirty ULP.
    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> x = np.array([-1.0, 0.0, 1.0], dtype=np.float32)
    >>> tensor_ops.gelu(x).round(4)
    array([-0.1588,  0.    ,  0.8412], dtype=float32)
    >>> tensor_ops.gelu(x, approximate="none").round(4)
    array([-0.1587,  0.    ,  0.8413], dtype=float32)
    """
    for source, result in element_blocks((x,), (out,), WIDE):
        gelu_of(source, approximate, x.dtype, out=result)
    return out

"""Sigmoid linear unit times a second input: the product inside SwiGLU."""

from typing import Any

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics.blocks import element_blocks
from tensor_ops.numerics.sigmoid import silu_of
from tensor_ops.op.accuracy import elementwise
from tensor_ops.op.arguments import Array, Elements
from tensor_ops.op.samples import WIDE_RANGE, Sample


@op(
    bounds=elementwise(signed_zeros=True),
    plain=lambda gate, up: gate / (1 + np.exp(-gate)) * up,
    samples=[
        Sample(
            "zeros and infinities",
            lambda draw: (
                draw.cast([-0.0, 0.0, -0.0, 0.0, -np.inf, -np.inf, np.inf, -200]),
                draw.cast([1.0, 1.0, -1.0, -1.0, 1.0, -1.0, -2.0, -1.0]),
            ),
        ),
        Sample("tails", lambda draw: (draw.cast(np.linspace(-110, 110, 2003)), draw.normal(2003))),
        Sample("far tails", lambda draw: (draw.spread(257, low=4, high=15), draw.normal(257))),
        Sample(
            "tail times large",
            lambda draw: (
                draw.cast(np.linspace(-170, -80, 257)),
                draw.spread(257, low=100, high=127),
            ),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "near zero",
            lambda draw: (draw.spread(257, low=-14, high=-4), draw.spread(257, low=-4, high=4)),
        ),
    ],
)
def silu_mul(gate: Elements, up: Elements, *, out: Array = None, backend: str | None = None) -> Any:
    r"""Multiply `up` by the sigmoid linear unit of `gate`.

    .. math:: y = \operatorname{silu}(g) \, u = \frac{g \, u}{1 + e^{-g}}

    Parameters
    ----------
    gate : array, any shape
        float32, float16, bfloat16 or float64.
    up : array of the shape and dtype of `gate`

    Notes
    -----
    Zero times infinity is NaN, as in any product.
    Half types are computed in float32, the far negative tail in float64: a product with a large
    `up` is right even where silu(gate) alone is smaller than float32 can hold.
    Source: Shazeer, "GLU Variants Improve Transformer", 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> gate = np.array([-1.0, 0.0, 1.0], dtype=np.float32)
    >>> up = np.array([2.0, 3.0, 4.0], dtype=np.float32)
    >>> tensor_ops.silu_mul(gate, up).round(4)
    array([-0.5379,  0.    ,  2.9242], dtype=float32)
    """
    for source, factor, result in element_blocks((gate, up), (out,)):
        silu_of(source, factor, out=result)
    return out

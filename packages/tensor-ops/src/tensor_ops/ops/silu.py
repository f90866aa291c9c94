"""Sigmoid linear unit."""

from typing import Any

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics.blocks import element_blocks
from tensor_ops.numerics.sigmoid import silu_of
from tensor_ops.op.accuracy import elementwise
from tensor_ops.op.arguments import Array, Elements
from tensor_ops.op.samples import Sample


@op(
    bounds=elementwise(signed_zeros=True),
    plain=lambda x: x / (1 + np.exp(-x)),
    samples=[
        Sample("zeros and infinities", lambda draw: draw.cast([-0.0, 0.0, -np.inf, np.inf])),
        Sample("tails", lambda draw: draw.cast(np.linspace(-110, 110, 2003))),
        Sample("far tails", lambda draw: draw.spread(257, low=4, high=15)),
        Sample("near zero", lambda draw: draw.spread(257, low=-14, high=-4)),
    ],
)
def silu(x: Elements, *, out: Array = None, backend: str | None = None) -> Any:
    r"""Multiply each element by its logistic sigmoid (also known as swish).

    .. math:: \operatorname{silu}(x) = x \, \sigma(x) = \frac{x}{1 + e^{-x}}

    Parameters
    ----------
    x : array, any shape
        float32, float16, bfloat16 or float64.

    Notes
    -----
    The limit at minus infinity is -0.0.
    Half types are computed in float32.
    Source: Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units for neural network function
    approximation in reinforcement learning", 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> tensor_ops.silu(np.array([-1.0, 0.0, 1.0], dtype=np.float32)).round(4)
    array([-0.2689,  0.    ,  0.7311], dtype=float32)
    """
    for source, result in element_blocks((x,), (out,)):
        silu_of(source, out=result)
    return out

"""Sigmoid linear unit times a second input: the product inside SwiGLU."""

from typing import Any

from tensor_ops_opencl.arguments import Array, Elements
from tensor_ops_opencl.iteration import ELEMENTS
from tensor_ops_opencl.op import op


@op(ELEMENTS)
def silu_mul(gate: Elements, up: Elements, *, out: Array = None) -> Any:
    r"""Multiply `up` by the sigmoid linear unit of `gate`.

    .. math:: y = \operatorname{silu}(g) \, u = \frac{g \, u}{1 + e^{-g}}

    Parameters
    ----------
    gate : array, any shape
        NumPy or pyopencl array; float32, float16, bfloat16 (``ml_dtypes``) or float64.
    up : array of the shape and dtype of `gate`

    Notes
    -----
    Half types are computed in float32. A product with a large `up` is right even where silu(gate)
    alone is smaller than the type can hold.
    Source: Shazeer, "GLU Variants Improve Transformer", 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops_opencl
    >>> gate = np.array([-1.0, 0.0, 1.0], dtype=np.float32)
    >>> up = np.array([2.0, 3.0, 4.0], dtype=np.float32)
    >>> tensor_ops_opencl.silu_mul(gate, up).round(4)
    array([-0.5379,  0.    ,  2.9242], dtype=float32)
    """

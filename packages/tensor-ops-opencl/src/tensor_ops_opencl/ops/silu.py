"""Sigmoid linear unit."""

from typing import Any

from tensor_ops_opencl.arguments import Array, Elements
from tensor_ops_opencl.iteration import ELEMENTS
from tensor_ops_opencl.op import op


@op(ELEMENTS)
def silu(x: Elements, *, out: Array = None) -> Any:
    r"""Multiply each element by its sigmoid.

    .. math:: y = \frac{x}{1 + e^{-x}}

    Parameters
    ----------
    x : array, any shape
        NumPy or pyopencl array; float32, float16, bfloat16 (``ml_dtypes``) or float64.

    Notes
    -----
    Half types are computed in float32. The limit at minus infinity is -0.0.
    Source: Elfwing, Uchibe and Doya, "Sigmoid-Weighted Linear Units", 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops_opencl
    >>> x = np.array([-1.0, 0.0, 1.0], dtype=np.float32)
    >>> tensor_ops_opencl.silu(x).round(4)
    array([-0.2689,  0.    ,  0.7311], dtype=float32)
    """

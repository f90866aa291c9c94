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
    out : array of the shape and dtype of `x`, optional
        Where the result goes: `x` itself or memory apart from the inputs.

    Returns
    -------
    array of the shape and dtype of `x`
        `out` if it was given. A pyopencl array is complete when its events are. The limit at minus
        infinity is -0.0.

    Raises
    ------
    TypeError
        If an argument is no array, has an unsupported dtype or another dtype than `x`.
    ValueError
        If a shape does not fit or `out` cannot take the result.
    DeviceError
        If there is no device, or it lacks the dtype.
    MemoryError
        If the device has no memory left for the call.

    Notes
    -----
    Half types are computed in float32.
    Source: Elfwing, Uchibe and Doya, "Sigmoid-Weighted Linear Units", 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops_opencl
    >>> x = np.array([-1.0, 0.0, 1.0], dtype=np.float32)
    >>> tensor_ops_opencl.silu(x).round(4)
    array([-0.2689,  0.    ,  0.7311], dtype=float32)
    """

"""Softmax of rows."""

from typing import Any

from tensor_ops_opencl.arguments import Array, Finite, Rows
from tensor_ops_opencl.iteration import RowIteration
from tensor_ops_opencl.op import op
from tensor_ops_opencl.scalars import scale_parts


@op(RowIteration(("measure_parts", "sum_parts", "write_parts"), quantities=2), numbers=scale_parts)
def softmax(x: Rows, scale: Finite = 1.0, *, out: Array = None) -> Any:
    r"""Turn each row, times a scale, into positive numbers whose sum is one.

    .. math:: y_i = \frac{e^{s x_i - m}}{\sum_j e^{s x_j - m}}, \qquad m = \max_j s x_j

    Parameters
    ----------
    x : array, shape (..., n)
        NumPy or pyopencl array; float32, float16, bfloat16 (``ml_dtypes``) or float64.
    scale : float, optional
        Finite; what attention calls ``1 / sqrt(head_dim)``.

    Notes
    -----
    Half types are computed in float32. The product of `scale` and x is not rounded before the row's
    largest has been taken from it, so that finite rows have the formula's values however large the
    products are. Minus infinity (a mask) gives zero; a row of nothing else, one with NaN, and one
    in which `scale` times an infinite x is plus infinity or NaN, is all NaN.
    Source: Bridle, "Probabilistic Interpretation of Feedforward Classification Network Outputs",
    1990.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops_opencl
    >>> tensor_ops_opencl.softmax(np.array([[0.0, 1.0, 2.0]], dtype=np.float32)).round(4)
    array([[0.09  , 0.2447, 0.6652]], dtype=float32)
    """

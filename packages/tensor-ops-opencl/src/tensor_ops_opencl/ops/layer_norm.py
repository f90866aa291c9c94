"""Layer normalization."""

from typing import Any

from tensor_ops_opencl.arguments import Array, NonNegative, OptionalRowVector, Rows, RowVector
from tensor_ops_opencl.iteration import RowIteration
from tensor_ops_opencl.op import op
from tensor_ops_opencl.scalars import eps_parts


@op(RowIteration(("measure_parts", "write_parts"), quantities=3), numbers=eps_parts)
def layer_norm(
    x: Rows,
    weight: RowVector,
    bias: OptionalRowVector = None,
    eps: NonNegative = 1e-5,
    *,
    out: Array = None,
) -> Any:
    r"""Shift each row to a mean of zero and scale it to a variance of one, then by a weight.

    .. math:: y_i = w_i \, \frac{x_i - \mu}{\sqrt{\sigma^2 + \epsilon}} + b_i

    Parameters
    ----------
    x : array, shape (..., n)
        NumPy or pyopencl array; float32, float16, bfloat16 (``ml_dtypes``) or float64.
    weight : array, shape (n,)
        In the dtype of `x`, or float32 beside a float16 or bfloat16 `x`.
    bias : array, shape (n,), optional
        In the dtype of `weight`.
    eps : float, optional
        Added to the variance; finite and not negative.

    Notes
    -----
    Half types are computed in float32. Rows whose squares leave the range of the type
    that is computed in are scaled.
    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops_opencl
    >>> x = np.array([[1.0, 2.0, 3.0]], dtype=np.float32)
    >>> tensor_ops_opencl.layer_norm(x, np.ones(3, dtype=np.float32)).round(4)
    array([[-1.2247,  0.    ,  1.2247]], dtype=float32)
    """

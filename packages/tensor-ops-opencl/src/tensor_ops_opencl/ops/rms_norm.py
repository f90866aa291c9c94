"""Root mean square layer normalization."""

from typing import Any

from tensor_ops_opencl.arguments import Array, NonNegative, Rows, RowVector
from tensor_ops_opencl.iteration import RowIteration
from tensor_ops_opencl.op import op
from tensor_ops_opencl.scalars import eps_parts


@op(RowIteration(("measure_parts", "write_parts"), quantities=1), numbers=eps_parts)
def rms_norm(x: Rows, weight: RowVector, eps: NonNegative = 1e-6, *, out: Array = None) -> Any:
    r"""Scale each row to a root mean square of one, then by a weight.

    .. math:: y_i = w_i \, \frac{x_i}{\sqrt{\tfrac{1}{n} \sum_j x_j^2 + \epsilon}}

    Parameters
    ----------
    x : array, shape (..., n)
        NumPy or pyopencl array; float32, float16, bfloat16 (``ml_dtypes``) or float64.
    weight : array, shape (n,)
        In the dtype of `x`, or float32 beside a float16 or bfloat16 `x`.
    eps : float, optional
        Added to the mean square; finite and not negative.

    Notes
    -----
    Half types are computed in float32. Rows whose squares leave the range of the type
    that is computed in are scaled.
    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops_opencl
    >>> x = np.array([[3.0, 4.0]], dtype=np.float32)
    >>> tensor_ops_opencl.rms_norm(x, np.ones(2, dtype=np.float32)).round(4)
    array([[0.8485, 1.1314]], dtype=float32)
    """

"""Residual addition and root mean square layer normalization in one pass."""

from typing import Any

from tensor_ops_opencl.arguments import Array, NonNegative, ResidualRows, Rows, RowVector
from tensor_ops_opencl.iteration import RowIteration
from tensor_ops_opencl.op import op
from tensor_ops_opencl.scalars import eps_parts


@op(
    RowIteration(("measure_parts", "write_parts"), quantities=1),
    results_like=("x", "residual"),
    numbers=eps_parts,
)
def add_rms_norm(
    x: Rows,
    residual: ResidualRows,
    weight: RowVector,
    eps: NonNegative = 1e-6,
    *,
    out: Array = None,
) -> Any:
    r"""Add a residual, then scale each row to a root mean square of one and by a weight.

    .. math::

        h_i &= x_i + r_i \\
        y_i &= w_i \, \frac{h_i}{\sqrt{\tfrac{1}{n} \sum_j h_j^2 + \epsilon}}

    Parameters
    ----------
    x : array, shape (..., n)
        NumPy or pyopencl array; float32, float16, bfloat16 (``ml_dtypes``) or float64.
    residual : array of the shape of `x`
        In the dtype of `x`, or float32 beside a float16 or bfloat16 `x`.
    weight : array, shape (n,)
        In the dtype of `x`, or float32 beside a float16 or bfloat16 `x`.
    eps : float, optional
        Added to the mean square; finite and not negative.
    out : tuple of two arrays of the shape of `x`, optional
        Where y and h go, in their dtypes: `x` itself, `residual` itself or memory apart from the
        inputs, and apart from each other.

    Returns
    -------
    y, h : arrays of the shape of `x`
        The normalized rows in the dtype of `x`, and the sum in the dtype of `residual`; `out` if
        it was given. pyopencl arrays are complete when their events are.

    Notes
    -----
    Half types are computed in float32, and y comes from h before that is rounded. Rows whose sums
    or squares leave the range of the type that is computed in are scaled.
    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, for y.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops_opencl
    >>> x = np.array([[1.0, 2.0]], dtype=np.float32)
    >>> residual = np.array([[2.0, 2.0]], dtype=np.float32)
    >>> y, h = tensor_ops_opencl.add_rms_norm(x, residual, np.ones(2, dtype=np.float32))
    >>> y.round(4)
    array([[0.8485, 1.1314]], dtype=float32)
    >>> h
    array([[3., 4.]], dtype=float32)
    """

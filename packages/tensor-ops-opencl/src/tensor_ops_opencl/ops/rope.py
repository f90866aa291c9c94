"""Rotary position embedding."""

from typing import Any

from tensor_ops_opencl.arguments import Array, HalfRows, Rows
from tensor_ops_opencl.iteration import PAIRS
from tensor_ops_opencl.op import op


@op(PAIRS)
def rope(
    x: Rows,
    cos: HalfRows,
    sin: HalfRows,
    *,
    interleaved: bool = False,
    out: Array = None,
) -> Any:
    r"""Rotate the pairs of each row by angles.

    .. math:: y_a = x_a \cos\theta - x_b \sin\theta, \qquad y_b = x_b \cos\theta + x_a \sin\theta

    Parameters
    ----------
    x : array, shape (..., n)
        NumPy or pyopencl array; float32, float16, bfloat16 (``ml_dtypes``) or float64.
        n is even.
    cos, sin : arrays that broadcast to (..., n/2)
        Of the angles, both in the dtype of `x`, or both float32 beside a float16 or bfloat16 `x`.
    interleaved : bool, optional
        Whether pairs lie side by side (GPT-J) or half a row apart (Llama).

    Notes
    -----
    Products are taken exactly where their difference is small beside them.
    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops_opencl
    >>> x = np.array([[1.0, 0.0]], dtype=np.float32)
    >>> cos, sin = np.array([0.0], dtype=np.float32), np.array([1.0], dtype=np.float32)
    >>> tensor_ops_opencl.rope(x, cos, sin)
    array([[0., 1.]], dtype=float32)
    """

"""Gaussian error linear unit times a second input: the product inside GeGLU."""

from typing import Any, Literal

from tensor_ops_opencl.arguments import Array, Elements
from tensor_ops_opencl.iteration import ELEMENTS
from tensor_ops_opencl.op import op


@op(ELEMENTS)
def gelu_mul(
    gate: Elements,
    up: Elements,
    approximate: Literal["tanh", "none"] = "tanh",
    *,
    out: Array = None,
) -> Any:
    r"""Multiply `up` by the Gaussian error linear unit of `gate`.

    .. math:: y = \operatorname{gelu}(g) \, u

    Parameters
    ----------
    gate : array, any shape
        NumPy or pyopencl array; float32, float16, bfloat16 (``ml_dtypes``) or float64.
    up : array of the shape and dtype of `gate`
    approximate : {"tanh", "none"}, optional
        The approximation by tanh, or the distribution function itself.

    Notes
    -----
    Half types are computed in float32. A product with a large `up` is right even where gelu(gate)
    alone is smaller than the type can hold.
    Source: Shazeer, "GLU Variants Improve Transformer", 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops_opencl
    >>> gate = np.array([-1.0, 0.0, 1.0], dtype=np.float32)
    >>> up = np.array([2.0, 3.0, 4.0], dtype=np.float32)
    >>> tensor_ops_opencl.gelu_mul(gate, up).round(4)
    array([-0.3176,  0.    ,  3.3648], dtype=float32)
    """

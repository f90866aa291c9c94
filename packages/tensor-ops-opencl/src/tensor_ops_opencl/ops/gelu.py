"""Gaussian error linear unit."""

from typing import Any, Literal

from tensor_ops_opencl.arguments import Array, Elements
from tensor_ops_opencl.iteration import ELEMENTS
from tensor_ops_opencl.op import op


@op(ELEMENTS)
def gelu(x: Elements, approximate: Literal["tanh", "none"] = "tanh", *, out: Array = None) -> Any:
    r"""Multiply each element by the normal distribution function at it, or by its approximation.

    .. math:: y = x \, \Phi(x) \approx \tfrac{x}{2}
        \left(1 + \tanh\left(\sqrt{2/\pi} \, (x + 0.044715 \, x^3)\right)\right)

    Parameters
    ----------
    x : array, any shape
        NumPy or pyopencl array; float32, float16, bfloat16 (``ml_dtypes``) or float64.
    approximate : {"tanh", "none"}, optional
        The approximation by tanh, or the distribution function itself.

    Notes
    -----
    Half types are computed in float32. The negative tail keeps its digits; the limit at minus
    infinity is -0.0.
    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops_opencl
    >>> x = np.array([-1.0, 0.0, 1.0], dtype=np.float32)
    >>> tensor_ops_opencl.gelu(x).round(4)
    array([-0.1588,  0.    ,  0.8412], dtype=float32)
    >>> tensor_ops_opencl.gelu(x, approximate="none").round(4)
    array([-0.1587,  0.    ,  0.8413], dtype=float32)
    """

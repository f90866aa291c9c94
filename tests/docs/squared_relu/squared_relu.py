"""Square of the rectified linear unit."""

from typing import Any

from tensor_ops_opencl.arguments import Array, Elements
from tensor_ops_opencl.iteration import ELEMENTS
from tensor_ops_opencl.op import op


@op(ELEMENTS)
def squared_relu(x: Elements, *, out: Array = None) -> Any:
    r"""Square what is positive and make the rest zero.

    .. math:: y = \max(x, 0)^2

    Parameters
    ----------
    x : array, any shape
        NumPy or pyopencl array; float32, float16, bfloat16 (``ml_dtypes``) or float64.

    Notes
    -----
    Half types are computed in float32.
    Source: So et al., "Primer: Searching for Efficient Transformers for Language Modeling", 2021.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops_opencl
    >>> tensor_ops_opencl.squared_relu(np.array([-2.0, 0.0, 3.0], dtype=np.float32))
    array([0., 0., 9.], dtype=float32)
    """

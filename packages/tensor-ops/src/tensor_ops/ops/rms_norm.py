"""Root mean square layer normalization."""

from typing import Any

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics import plain
from tensor_ops.numerics.blocks import compute_dtype, row_blocks
from tensor_ops.numerics.row_statistics import divide_by_rms
from tensor_ops.op.accuracy import rowwise
from tensor_ops.op.arguments import Array, NonNegative, Rows, RowVector
from tensor_ops.op.samples import WIDE_RANGE, Sample


@op(
    bounds=rowwise(),
    plain=plain.rms_norm,
    samples=[
        Sample("eps", lambda draw: draw.normal(3, 64), {"eps": 1e-2}),
        Sample("eps of zero", lambda draw: draw.normal(3, 64), {"eps": 0}),
        Sample("zero row", lambda draw: draw.full(0.0, 2, 33)),
        Sample("zero row, eps of zero", lambda draw: draw.full(0.0, 2, 3), {"eps": 0}),
        Sample("large squares", lambda draw: draw.normal(4, 4096, scale=1e19), dtypes=WIDE_RANGE),
        Sample(
            "small rows", lambda draw: draw.normal(4, 300, scale=1e-25), {"eps": 0.0}, WIDE_RANGE
        ),
        Sample(
            "large weights on small elements",
            lambda draw: (draw.spread(4, 300, low=-140, high=40), draw.spread(300, low=0, high=23)),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "larger weights on smaller elements",
            lambda draw: (
                draw.spread(4, 300, low=-1070, high=60),
                draw.spread(300, low=0, high=52),
            ),
            dtypes=("float64",),
        ),
        Sample("subnormal rows", lambda draw: draw.subnormal(4, 300), {"eps": 0.0}),
        Sample(
            "squares beyond float64",
            lambda draw: draw.normal(4, 300, scale=1e200),
            dtypes=("float64",),
        ),
        Sample(
            "squares below float64",
            lambda draw: draw.normal(4, 300, scale=1e-200),
            {"eps": 1e-305},
            ("float64",),
        ),
    ],
)
def rms_norm(
    x: Rows,
    weight: RowVector,
    eps: NonNegative = 1e-6,
    *,
    out: Array = None,
    backend: str | None = None,
) -> Any:
    r"""Scale each row to a root mean square of one, then by a weight.

    .. math:: y_i = w_i \, \frac{x_i}{\sqrt{\tfrac{1}{n} \sum_j x_j^2 + \epsilon}}

    Parameters
    ----------
    x : array, shape (..., n)
        float32, float16, bfloat16 or float64. Rows lie along the last axis.
    weight : array, shape (n,)
        In the dtype of `x`, or float32 beside a float16 or bfloat16 `x`.
    eps : float, optional
        Added to the mean square; finite and not negative.

    Notes
    -----
    Half types are computed in float32. Rows whose squares the dtype cannot hold are computed in
    float64, scaled by a power of two.
    Errors are bounded for weights of at most 2**23, or 2**52 in float64. A small element, once
    divided by the root mean square, may be subnormal or zero, and a larger weight multiplies the
    error of that.
    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> x = np.array([[3.0, 4.0]], dtype=np.float32)
    >>> tensor_ops.rms_norm(x, np.ones(2, dtype=np.float32)).round(4)
    array([[0.8485, 1.1314]], dtype=float32)
    """
    scale = weight.astype(compute_dtype(weight.dtype))
    for source, result in row_blocks((x,), (out,)):
        divide_by_rms(source, eps, result)
        np.multiply(result, scale, out=result)
    return out

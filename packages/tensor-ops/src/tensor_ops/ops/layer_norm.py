"""Layer normalization."""

from typing import Any

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics.blocks import compute_dtype, row_blocks
from tensor_ops.numerics.row_statistics import standardize
from tensor_ops.op.accuracy import rowwise
from tensor_ops.op.arguments import Array, NonNegative, OptionalRowVector, Rows, RowVector
from tensor_ops.op.samples import WIDE_RANGE, Sample


def _plain(x: Array, weight: Array, bias: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * weight + bias


@op(
    bounds=rowwise("row"),
    plain=_plain,
    samples=[
        Sample("bias", lambda draw: (draw.normal(3, 64), draw.normal(64), draw.normal(64))),
        Sample(
            "bias and eps", lambda draw: (draw.normal(3, 64), draw.normal(64), draw.normal(64), 1.0)
        ),
        Sample("eps of zero", lambda draw: draw.normal(3, 64), {"eps": 0}),
        Sample(
            "mean far from zero",
            lambda draw: (
                draw.cast(1e4 + draw.random.standard_normal((5, 1000))),
                draw.normal(1000),
                draw.normal(1000),
            ),
            dtypes=("float32", "float64"),
        ),
        Sample("constant row", lambda draw: draw.full(0.1, 2, 33)),
        Sample("constant row, eps of zero", lambda draw: draw.full(0.1, 2, 33), {"eps": 0.0}),
        Sample("one column", lambda draw: (draw.normal(5, 1), draw.normal(1), draw.normal(1))),
        Sample("large squares", lambda draw: draw.normal(4, 4096, scale=1e19), dtypes=WIDE_RANGE),
        Sample(
            "sum that overflows",
            lambda draw: draw.cast(3e38 * draw.random.uniform(-1, 1, (3, 100))),
            dtypes=WIDE_RANGE,
        ),
        Sample(
            "small rows", lambda draw: draw.normal(4, 300, scale=1e-25), {"eps": 0.0}, WIDE_RANGE
        ),
        Sample(
            "sum beyond float64",
            lambda draw: draw.cast(1.7e308 * draw.random.uniform(-1, 1, (3, 100))),
            dtypes=("float64",),
        ),
        Sample(
            "constant row beyond float64",
            lambda draw: draw.full(1.7e308, 2, 33),
            dtypes=("float64",),
        ),
        Sample("subnormal rows", lambda draw: draw.subnormal(4, 300), {"eps": 0.0}),
        Sample(
            "subnormal rows, small eps",
            lambda draw: draw.subnormal(4, 300),
            {"eps": 1e-20},
            ("float32", "bfloat16"),
        ),
        Sample(
            "subnormal rows, smaller eps",
            lambda draw: draw.subnormal(4, 300),
            {"eps": 1e-200},
            ("float64",),
        ),
        Sample(
            "subnormal rows far from zero",
            lambda draw: (
                draw.full(2e-308, 4, 300) + draw.subnormal(4, 300),
                draw.normal(300),
                draw.normal(300),
                0.0,
            ),
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
def layer_norm(
    x: Rows,
    weight: RowVector,
    bias: OptionalRowVector = None,
    eps: NonNegative = 1e-5,
    *,
    out: Array = None,
    backend: str | None = None,
) -> Any:
    r"""Bring each row to a mean of zero and a variance of one, then scale and shift it.

    .. math::

        \mu &= \tfrac{1}{n} \sum_j x_j \\
        y_i &= w_i \, \frac{x_i - \mu}{\sqrt{\tfrac{1}{n} \sum_j (x_j - \mu)^2 + \epsilon}} + b_i

    Parameters
    ----------
    x : array, shape (..., n)
        float32, float16, bfloat16 or float64. Rows lie along the last axis.
    weight : array, shape (n,)
        In the dtype of `x`, or float32 beside a float16 or bfloat16 `x`.
    bias : array, shape (n,), optional
        In the dtype of `weight`; zero if it is not given.
    eps : float, optional
        Added to the variance; finite and not negative.

    Notes
    -----
    Half types are computed in float32. The mean is taken twice, the second time of what the
    first left over, so that rows far from zero keep their digits. Rows whose sums or squares
    float32 cannot hold are computed in float64.
    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> x = np.array([[1.0, 3.0, 5.0, 7.0]], dtype=np.float32)
    >>> tensor_ops.layer_norm(x, np.ones(4, dtype=np.float32)).round(4)
    array([[-1.3416, -0.4472,  0.4472,  1.3416]], dtype=float32)
    """
    dtype = compute_dtype(x.dtype)
    scale = weight.astype(dtype)
    shift = None if bias is None else bias.astype(dtype)
    for source, result in row_blocks((x,), (out,)):
        standardize(source, eps, result)
        np.multiply(result, scale, out=result)
        if shift is not None:
            np.add(result, shift, out=result)
    return out

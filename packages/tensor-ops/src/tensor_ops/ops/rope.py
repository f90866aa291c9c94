"""Rotary position embedding."""

from typing import Any

import numpy as np

from tensor_ops.dispatch import op
from tensor_ops.numerics.blocks import WIDE, view_blocks
from tensor_ops.numerics.rounding import add_where_finite, product_error
from tensor_ops.op.accuracy import Bound, elementwise
from tensor_ops.op.arguments import Array, HalfRows, Rows
from tensor_ops.op.samples import Draw, Sample


def _cancelling(draw: Draw) -> tuple[Array, ...]:
    """Return angles that turn every pair almost onto an axis: a cos - b sin is nearly zero."""
    x = draw.normal(4, 128)
    a, b = np.split(x.astype(np.float64), 2, axis=-1)
    angle = np.arctan2(a, b)
    return x, draw.cast(np.cos(angle)), draw.cast(np.sin(angle))


def _angles(draw: Draw, *shape: int) -> tuple[Array, Array]:
    angle = draw.random.uniform(0, 100, shape)
    return draw.cast(np.cos(angle)), draw.cast(np.sin(angle))


def _plain(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    if interleaved:
        even, odd = x[..., ::2], x[..., 1::2]
        pairs = np.stack([even * cos - odd * sin, odd * cos + even * sin], axis=-1)
        return pairs.reshape(x.shape)
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


@op(
    bounds=elementwise(),
    plain=_plain,
    # PyTorch has no more than float64, and rounds both products before their difference.
    wider_bounds={("torch", "float64"): Bound(8, of_row=1e-15)},
    samples=[
        Sample(
            "batch, heads, positions", lambda draw: (draw.normal(2, 3, 5, 16), *_angles(draw, 5, 8))
        ),
        Sample(
            "batch, positions, heads",
            lambda draw: (draw.normal(2, 5, 3, 16), *_angles(draw, 5, 1, 8)),
        ),
        Sample(
            "interleaved",
            lambda draw: (draw.normal(2, 5, 3, 16), *_angles(draw, 5, 1, 8)),
            {"interleaved": True},
        ),
        Sample(
            "angles of every row", lambda draw: (draw.normal(2, 7, 16), *_angles(draw, 2, 7, 8))
        ),
        Sample("one angle", lambda draw: (draw.normal(3, 16), *_angles(draw, 1))),
        Sample("one pair", lambda draw: (draw.normal(5, 2), *_angles(draw, 5, 1))),
        Sample(
            "many blocks", lambda draw: (draw.normal(3, 600, 2, 64), *_angles(draw, 600, 1, 32))
        ),
        Sample("long rows", lambda draw: (draw.normal(2, 3, 40000), *_angles(draw, 3, 20000))),
        Sample("cancellation", _cancelling),
        Sample(
            "products that overflow",
            lambda draw: (draw.full(3e38, 2, 4), draw.cast([3.0, 0.5]), draw.cast([2.5, 2.0])),
            dtypes=("float32", "bfloat16"),
        ),
    ],
)
def rope(
    x: Rows,
    cos: HalfRows,
    sin: HalfRows,
    *,
    interleaved: bool = False,
    out: Array = None,
    backend: str | None = None,
) -> Any:
    r"""Turn each pair of elements of a row by an angle.

    .. math::

        y_a &= x_a \cos\theta - x_b \sin\theta \\
        y_b &= x_b \cos\theta + x_a \sin\theta

    Pair i of a row of length n is (i, i + n/2), or (2i, 2i + 1) if `interleaved`.

    Parameters
    ----------
    x : array, shape (..., n)
        float32, float16, bfloat16 or float64; n is even. Rows lie along the last axis.
    cos, sin : array
        The cosine and the sine of each pair's angle, both in the dtype of `x`, or both float32
        beside a float16 or bfloat16 `x`. They broadcast to (..., n/2), separately, and are not
        repeated in memory for it.
    interleaved : bool, optional
        False for two halves (Hugging Face, GPT-NeoX), True for neighbours (GPT-J, Meta's Llama).

    Notes
    -----
    Computed in float64, where products of the shorter dtypes are exact: the difference is right
    to the last place even if its terms cancel. The transpose of a rotation is the rotation back:
    the gradient with respect to `x` is rope of the gradient, with ``-sin``.
    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> x = np.array([[1.0, 2.0, 3.0, 4.0]], dtype=np.float32)
    >>> cos = np.array([0.6, 0.0], dtype=np.float32)
    >>> sin = np.array([0.8, 1.0], dtype=np.float32)
    >>> tensor_ops.rope(x, cos, sin).round(4)
    array([[-1.8, -4. ,  2.6,  2. ]], dtype=float32)
    >>> tensor_ops.rope(x, cos, sin, interleaved=True).round(4)
    array([[-1.,  2., -4.,  3.]], dtype=float32)
    """
    half = x.shape[-1] // 2
    first = np.s_[..., 0::2] if interleaved else np.s_[..., :half]
    second = np.s_[..., 1::2] if interleaved else np.s_[..., half:]
    shape = (*x.shape[:-1], half)
    rotate = _rotate_float64 if x.dtype == WIDE else _rotate
    angles = np.broadcast_to(cos, shape), np.broadcast_to(sin, shape)
    for result, source, c, s in view_blocks((out, x), angles):
        a, b = source[first].astype(WIDE), source[second].astype(WIDE)
        result[first], result[second] = rotate(a, b, c.astype(WIDE), s.astype(WIDE))
    return out


def _rotate(a: Array, b: Array, c: Array, s: Array) -> tuple[Array, Array]:
    y_a, y_b = a * c, b * c
    b *= s
    y_a -= b
    a *= s
    y_b += a
    return y_a, y_b


def _rotate_float64(a: Array, b: Array, c: Array, s: Array) -> tuple[Array, Array]:
    return _difference_of_products(a, c, b, s), _difference_of_products(b, c, a, -s)


def _difference_of_products(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Return ``a * b - c * d`` with the rounding errors of both products compensated."""
    left, right = a * b, c * d
    correction = product_error(a, b, left) - product_error(c, d, right)
    return add_where_finite(left - right, correction)

"""Gradients of the norms: what their rows have in common, and sums over all rows.

Tested by tests/conformance/.
"""

from typing import Any

import numpy as np

from tensor_ops.numerics.blocks import WIDE, compute_dtype, row_blocks
from tensor_ops.numerics.row_statistics import normalized_rows
from tensor_ops.op.samples import WIDE_RANGE, Sample

__all__ = ["SAMPLES", "norm_gradient", "norm_gradient_terms"]

Array = np.ndarray[Any, Any]

# Calls that the gradients of every norm must give right results for.
SAMPLES = [
    Sample("eps of zero", lambda draw: (draw.normal(3, 64), draw.normal(3, 64)), {"eps": 0}),
    Sample("many rows", lambda draw: (draw.normal(5000, 24), draw.normal(5000, 24))),
    Sample("gradients of zero", lambda draw: (draw.full(0.0, 40, 33), draw.normal(40, 33))),
    Sample(
        "large squares",
        lambda draw: (draw.normal(4, 4096), draw.normal(4, 4096, scale=1e19)),
        dtypes=WIDE_RANGE,
    ),
    Sample(
        "small rows",
        lambda draw: (draw.normal(4, 300, scale=1e-12), draw.normal(4, 300, scale=1e-25)),
        {"eps": 0.0},
        WIDE_RANGE,
    ),
    Sample(
        "squares below float64",
        lambda draw: (draw.normal(4, 300, scale=1e-200), draw.normal(4, 300, scale=1e-190)),
        {"eps": 0.0},
        ("float64",),
    ),
    Sample(
        "squares beyond float64",
        lambda draw: (draw.normal(4, 300), draw.normal(4, 300, scale=1e200)),
        dtypes=("float64",),
    ),
]


def norm_gradient(
    rows: tuple[Array, ...],
    weight: Array,
    eps: float,
    out: tuple[Array, ...],
    *,
    centered: bool = False,
) -> None:
    """Write the gradients of a norm with respect to its rows, its weight and, if asked, its bias.

    The rows are those of the gradient and of the norm's input. Between them may be a gradient of
    the input from elsewhere, which is added.
    """
    scale = weight.astype(WIDE)
    of_rows, *of_vectors = out
    sums = [np.zeros(each.shape) for each in of_vectors]
    for grad, *elsewhere, x, result in row_blocks(rows, (of_rows,), WIDE):
        normalized, inverse = normalized_rows(x, eps, centered)
        along = grad * scale
        part = inverse * np.mean(along * normalized, axis=-1, keepdims=True)
        found = (grad * inverse) * scale - normalized * part
        if centered:
            found -= inverse * np.mean(along, axis=-1, keepdims=True)
        for each in elsewhere:
            found += each
        for total, terms in zip(sums, (grad * normalized, grad.copy()), strict=False):
            # Row after row, so that blocks do not show.
            terms[0] += total
            terms.sum(axis=0, out=total)
        # Last, for this may be the memory of the gradient. Half types are rounded from float32.
        result[...] = found.astype(compute_dtype(of_rows.dtype))
    for vector, total in zip(of_vectors, sums, strict=True):
        vector[...] = total.astype(compute_dtype(vector.dtype))


def norm_gradient_terms(
    rows: tuple[Array, ...], weight: Array, eps: float, *, centered: bool = False
) -> tuple[Array, ...]:
    """Return the magnitudes of the terms of the gradients, added up; that of a bias comes last."""
    grad, *elsewhere = map(np.abs, rows[:-1])
    if not grad.size:
        return grad, *np.zeros((2, *weight.shape))
    normalized, inverse = normalized_rows(rows[-1], eps, centered)
    # The rest of an element after the mean is subtracted is as exact as the mean.
    normalized = np.abs(normalized) + centered
    along = grad * np.abs(weight)
    means = np.mean(along * normalized, axis=-1, keepdims=True)
    of_rows = inverse * (along + normalized * means)
    for each in elsewhere:
        of_rows = of_rows + each
    leading = tuple(range(grad.ndim - 1))
    return of_rows, (grad * normalized).sum(axis=leading), grad.sum(axis=leading)

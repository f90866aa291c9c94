"""Walking over arrays in blocks that stay in the cache, in the precision of the computation."""

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["WIDE", "compute_dtype", "element_blocks", "row_blocks", "view_blocks"]

Array = np.ndarray[Any, Any]

# The size of a block in bytes. With smaller blocks the calls into NumPy cost more than their work;
# with larger ones the temporaries of an op leave the cache.
BLOCK = 512 * 1024

WIDE = np.dtype(np.float64)


def compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype to compute in: float32 for the half types, else the dtype itself."""
    return np.dtype(np.float32) if dtype.itemsize < 4 else dtype


def row_blocks(
    inputs: tuple[Array, ...], outputs: tuple[Array, ...], dtype: np.dtype[Any] | None = None
) -> Iterator[list[Array]]:
    """Yield the inputs and outputs as blocks of shape (rows, n), C-contiguous, to compute on.

    The inputs of a block are converted to `dtype`, by default that of `compute_dtype`; the
    outputs of a block are stored when the next one is asked for.
    """
    n = outputs[0].shape[-1]
    return _blocks([each.reshape(-1, n) for each in inputs], outputs, n, dtype)


def element_blocks(
    inputs: tuple[Array, ...], outputs: tuple[Array, ...], dtype: np.dtype[Any] | None = None
) -> Iterator[list[Array]]:
    """Yield the inputs and outputs as one-dimensional blocks; see `row_blocks`."""
    for block in _blocks([each.reshape(-1, 1) for each in inputs], outputs, 1, dtype):
        yield [each[:, 0] for each in block]


def view_blocks(whole: tuple[Array, ...], repeated: tuple[Array, ...]) -> Iterator[list[Array]]:
    """Yield matching views, in blocks of whole rows, of arrays that differ only in row length.

    Along a leading axis that an array in `repeated` repeats, its view has length one.
    """
    for place in _places(whole[0].shape):
        yield [*(each[place] for each in whole), *(_unrepeated(each[place]) for each in repeated)]


def _places(shape: tuple[int, ...]) -> Iterator[tuple[int | slice, ...]]:
    """Yield the places of blocks of whole rows that lie side by side in an array of `shape`."""
    limit = BLOCK // WIDE.itemsize
    axis = len(shape) - 1
    inner = shape[-1]
    while axis > 0 and inner * shape[axis - 1] <= limit:
        axis -= 1
        inner *= shape[axis]
    if axis == 0:
        yield ()
        return
    step = max(1, limit // inner)
    for outer in np.ndindex(shape[: axis - 1]):
        for start in range(0, shape[axis - 1], step):
            yield (*outer, slice(start, start + step))


def _unrepeated(view: Array) -> Array:
    return view[tuple(slice(None) if step else slice(1) for step in view.strides[:-1])]


def _blocks(
    inputs: list[Array], outputs: tuple[Array, ...], n: int, dtype: np.dtype[Any] | None
) -> Iterator[list[Array]]:
    dtype = dtype or compute_dtype(outputs[0].dtype)
    # Where the rows of an output cannot be flattened, they are computed in memory of their own.
    memory = [out if out.flags.c_contiguous else np.empty(out.shape, out.dtype) for out in outputs]
    targets = [each.reshape(-1, n) for each in memory]
    rows = targets[0].shape[0]
    step = max(1, BLOCK // (n * dtype.itemsize))
    direct = [target.dtype == dtype for target in targets]
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        sources = [np.ascontiguousarray(each[start:stop], dtype) for each in inputs]
        results = [
            target[start:stop] if is_direct else np.empty((stop - start, n), dtype)
            for target, is_direct in zip(targets, direct, strict=True)
        ]
        yield [*sources, *results]
        for target, result, is_direct in zip(targets, results, direct, strict=True):
            if not is_direct:
                target[start:stop] = result
    for output, target in zip(outputs, targets, strict=True):
        if not np.may_share_memory(output, target):
            output[...] = target.reshape(output.shape)

"""Walking over arrays in blocks that stay in the cache, in the precision of the computation."""

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["compute_dtype", "element_blocks", "row_blocks"]

Array = np.ndarray[Any, Any]

# 128 KiB of float32: a block and the temporaries of an op fit into a 1 MiB L2 cache.
BLOCK = 32 * 1024


def compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype to compute in: float32 for the half types, else the dtype itself."""
    return np.dtype(np.float32) if dtype.itemsize < 4 else dtype


def row_blocks(inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> Iterator[list[Array]]:
    """Yield the inputs and outputs as blocks of shape (rows, n), C-contiguous, to compute on.

    The inputs of a block are converted to the dtype of the computation, the outputs of a block
    are stored when the next one is asked for. Inputs with fewer rows are broadcast.
    """
    shape = outputs[0].shape
    return _blocks(
        [_flat(np.broadcast_to(each, (*shape[:-1], each.shape[-1]))) for each in inputs],
        outputs,
        shape[-1],
    )


def element_blocks(inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> Iterator[list[Array]]:
    """Yield the inputs and outputs as one-dimensional blocks; see `row_blocks`."""
    for block in _blocks([each.reshape(-1, 1) for each in inputs], outputs, 1):
        yield [each[:, 0] for each in block]


def _flat(array: Array) -> Array:
    return array.reshape(-1, array.shape[-1])


def _blocks(inputs: list[Array], outputs: tuple[Array, ...], n: int) -> Iterator[list[Array]]:
    dtype = compute_dtype(outputs[0].dtype)
    targets = [_contiguous(output).reshape(-1, n) for output in outputs]
    rows = targets[0].shape[0]
    step = max(1, BLOCK // n)
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


def _contiguous(output: Array) -> Array:
    """Return the output itself, or memory to compute in where its rows cannot be flattened."""
    return output if output.flags.c_contiguous else np.empty(output.shape, output.dtype)

"""Runs every kernel once at small sizes, for a checker of memory accesses to watch.

    compute-sanitizer --tool racecheck python tools/run_every_kernel.py

Needs tensor_ops and ml_dtypes besides NumPy, and starts no other backend's kernels.
"""

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import tensor_ops_cuda
from tensor_ops.op.arguments import DTYPES
from tensor_ops.op.samples import Draw, arguments
from tensor_ops.variants import Variant, named

# Rows of a part of a warp, a warp, a block, a cluster and several passes; in whole vectors and not.
LENGTHS = (2, 30, 64, 200, 1024, 1026, 4096, 8192, 16384, 32768, 65538, 131072)
LONGEST = 262144
Arguments = dict[str, Any]


def main() -> int:
    """Run all ops on every dtype, length of rows and layout; return the exit status."""
    lengths = [int(word) for word in sys.argv[1:]] or [*LENGTHS, LONGEST]
    count = 0
    variants = [variant for name in tensor_ops_cuda.ops for variant in named(name)]
    for n, dtype, variant in itertools.product(lengths, DTYPES, variants):
        rows = max(1, min(5, 20_000 // n))
        for given in _calls(variant, dtype, (rows, n)):
            getattr(tensor_ops_cuda, variant.op.name)(**given, **variant.options)
            count += 1
    print(f"{count} calls")
    return 0


def _calls(variant: Variant, dtype: str, shape: tuple[int, int]) -> Iterator[Arguments]:
    """Yield the arguments of calls on values, layouts and memory of every kind."""
    op, draw = variant.op, Draw(dtype, f"{variant.name}/{shape}")
    values = arguments(op, shape, draw)
    mixtures = op.mixtures if DTYPES[dtype].itemsize == 2 else []
    for given in (values, *(arguments(op, shape, draw, wide) for wide in mixtures)):
        for layout in (np.asarray, _with_infinity, _padded):
            yield given | {op.first: layout(given[op.first])}
    for name, kind in op.kinds.items():
        if kind.optional:
            yield values | {name: None}
        if kind.role == "half_rows":
            yield values | {name: values[name][:1]}
        if kind.role == "real" and kind.minimum < 0:
            yield values | {name: 0.5}
            yield values | {name: -0.5}
    on_device = {name: tensor_ops_cuda.to_device(value) for name, value in values.items()}
    for given in (on_device, values):
        yield given
        if op.outputs == 1:
            yield given | {"out": given[op.first]}


def _with_infinity(array: Any) -> Any:
    """Return a copy whose first row takes the kernel's path for extraordinary values."""
    copy = array.copy()
    copy[0, 0] = np.inf
    return copy


def _padded(array: Any) -> Any:
    """Return a copy in a larger array: no vector of it is aligned."""
    wide = np.zeros((array.shape[0], array.shape[1] + 3), array.dtype)
    wide[:, 1:-2] = array
    return wide[:, 1:-2]


if __name__ == "__main__":
    sys.exit(main())

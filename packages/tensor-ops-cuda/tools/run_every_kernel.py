"""Runs every kernel once at small sizes, for a checker of memory accesses to watch.

    compute-sanitizer --tool racecheck python tools/run_every_kernel.py

Needs NumPy and ml_dtypes only, so that a checker watches no other library's kernels.
"""

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

import tensor_ops_cuda

DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)
# Rows of a part of a warp, a warp, a block, a cluster and several passes; in whole vectors and not.
LENGTHS = (2, 30, 64, 200, 1024, 1026, 4096, 8192, 16384, 32768, 65538, 131072)
LONGEST = 262144
Arguments = dict[str, Any]


def main() -> int:
    """Run all ops on every dtype, length of rows and layout; return the exit status."""
    lengths = [int(word) for word in sys.argv[1:]] or [*LENGTHS, LONGEST]
    count = 0
    for n, dtype in itertools.product(lengths, DTYPES):
        rows = max(1, min(5, 20_000 // n))
        for name, arguments in _calls(np.dtype(dtype), rows, n):
            getattr(tensor_ops_cuda, name)(**arguments)
            count += 1
    print(f"{count} calls")
    return 0


def _calls(dtype: np.dtype[Any], rows: int, n: int) -> Iterator[tuple[str, Arguments]]:
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(dtype)

    x, other, weight = draw(rows, n), draw(rows, n), draw(n)
    # The rows that need care too.
    large = x.copy()
    large[0, 0] = np.inf
    apart = draw(rows, n + 3)[:, 1 : n + 1]
    for first in (x, large, apart):
        yield from _every_op(first, other, weight, draw)
    if dtype.itemsize == 2:
        for first in (x, large, apart):
            yield from _mixed(first, other, weight, draw)
    device = tensor_ops_cuda.to_device
    yield from _every_op(device(x), device(other), device(weight), lambda *s: device(draw(*s)))
    yield from _in_place(x, weight)
    yield from _in_place(device(x), device(weight))


def _every_op(x: Any, other: Any, weight: Any, draw: Any) -> Iterator[tuple[str, Arguments]]:
    rows, n = x.shape
    yield "rms_norm", {"x": x, "weight": weight}
    yield "add_rms_norm", {"x": x, "residual": other, "weight": weight}
    yield "layer_norm", {"x": x, "weight": weight, "bias": None}
    yield "layer_norm", {"x": x, "weight": weight, "bias": draw(n)}
    yield "silu", {"x": x}
    yield "silu_mul", {"gate": x, "up": other}
    for approximate in ("tanh", "none"):
        yield "gelu", {"x": x, "approximate": approximate}
        yield "gelu_mul", {"gate": x, "up": other, "approximate": approximate}
    for scale in (0.5, -0.5):
        yield "softmax", {"x": x, "scale": scale}
    for interleaved in (False, True):
        angles = {"cos": draw(1, n // 2), "sin": draw(rows, n // 2)}
        yield "rope", {"x": x, **angles, "interleaved": interleaved}


def _mixed(x: Any, other: Any, weight: Any, draw: Any) -> Iterator[tuple[str, Arguments]]:
    rows, n = x.shape
    single = np.float32
    yield "rms_norm", {"x": x, "weight": weight.astype(single)}
    yield "layer_norm", {"x": x, "weight": weight.astype(single), "bias": draw(n).astype(single)}
    for residual, scale in ((single, weight.dtype), (weight.dtype, single), (single, single)):
        given = {"residual": other.astype(residual), "weight": weight.astype(scale)}
        yield "add_rms_norm", {"x": x, **given}
    for interleaved in (False, True):
        angles = {key: draw(rows, n // 2).astype(single) for key in ("cos", "sin")}
        yield "rope", {"x": x, **angles, "interleaved": interleaved}


def _in_place(x: Any, weight: Any) -> Iterator[tuple[str, Arguments]]:
    yield "silu", {"x": x, "out": x}
    yield "softmax", {"x": x, "out": x}
    yield "rms_norm", {"x": x, "weight": weight, "out": x}
    yield "layer_norm", {"x": x, "weight": weight, "out": x}


if __name__ == "__main__":
    sys.exit(main())

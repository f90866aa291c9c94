"""Every op on rows of every kind of length, against its own meaning in float64; run by a test.

python row_lengths.py OP short|long [EVERY]
"""

import itertools
import sys

import ml_dtypes  # noqa: F401  registers bfloat16
import numpy as np

import tensor_ops_cuda
from tensor_ops.op import accuracy
from tensor_ops.op.samples import Draw, arguments
from tensor_ops.ops import OPS

# Parts of a warp, a warp, several, few and many vectors of each lane; whole vectors and not.
SHORT = (2, 14, 60, 64, 250, 1022, 2048, 5120, 8192)
# Many vectors, a cluster's blocks, and parts. For float32 the limits are at 8192, 16384 and 131072,
# for half types at twice that.
LONG = (8194, 16384, 16390, 33000, 65536, 131074, 270_000)


def main() -> None:
    """Check the named op in every dtype with every length, or with each EVERY-th of these pairs."""
    name, lengths, *every = sys.argv[1:]
    op, step = OPS[name], int(*every or "1")
    pairs = itertools.product(op.bounds, {"short": SHORT, "long": LONG}[lengths])
    for dtype, n in itertools.islice(pairs, 0, None, step):
        check(op, dtype, n)
    print(op.name)


def check(op, dtype, n):
    rows = 5 if n < 10_000 else 2
    values = arguments(op, (rows, n), Draw(dtype, f"{op.name}/{n}"))
    for special in (None, np.inf, np.nan, 3e4) if n < 10_000 else (np.inf, 3e4):
        if special is not None:
            values[op.first][1, n - 1] = special
        result = compare(op, dtype, values, f"n={n} special={special}")
    alone = {key: each[1:2] if each.ndim > 1 else each for key, each in values.items()}
    for whole, one in zip(result, as_tuple(function(op)(**alone)), strict=True):
        assert whole[1:2].tobytes() == one.tobytes(), f"{op.name} {dtype} n={n}: alone it differs"
    mine = {key: each.copy() if is_full(op, key) else each for key, each in values.items()}
    places = [mine[key] for key in mine if is_full(op, key)][: op.outputs]
    places += [np.empty_like(places[0])] * (op.outputs - len(places))
    function(op)(**mine, out=tuple(places) if op.outputs > 1 else places[0])
    for given, expected in zip(places, result, strict=True):
        assert given.tobytes() == expected.tobytes(), (
            f"{op.name} {dtype} n={n}: in place it differs"
        )


def compare(op, dtype, values, case):
    with np.errstate(all="ignore"):
        wide = {key: each.astype(np.float64) for key, each in values.items()}
        expected = as_tuple(op.numpy(**wide))
    result = as_tuple(function(op)(**values))
    for got, wanted in zip(result, expected, strict=True):
        measured = accuracy.measure(got, wanted, op.bounds[dtype])
        found = f"{measured.problem or measured.error}, allowed {measured.limit}"
        assert measured.within, f"{op.name} {dtype} {case}: {found}"
    return result


def function(op):
    return tensor_ops_cuda.ops[op.name]


def is_full(op, name):
    return op.kinds[name].role in ("rows", "elements")


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


if __name__ == "__main__":
    main()

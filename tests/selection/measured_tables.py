"""Tables of times as `tensor-ops tune` writes them, for the backends of `test_fastest`."""

from tensor_ops.config.tuning_table import Entry

SMALL, LARGE = 10, 1000  # the sizes in the tables below; 100 is the last that goes by the small one


def entry(size, dtype="float32", op="silu", wrong=(), **seconds):
    return Entry(op, dtype, (size,), "2026-11-22", seconds, dict(wrong))


def both(**more):
    """Alpha is the fastest for small arrays, beta for large ones."""
    return entry(SMALL, alpha=1, beta=2, **more), entry(LARGE, alpha=4, beta=3, **more)

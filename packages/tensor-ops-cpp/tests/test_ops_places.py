"""Rows and elements have the same bits wherever they are."""

import numpy as np
import pytest
from cpp_cases import OP_VARIANTS, OPS, arguments, rowwise, same_bits


@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_rows_do_not_depend_on_their_batch(op, kwargs, dtype, rng):
    given = arguments(op, (257, 132), dtype, rng)
    whole = rowwise(op, OPS[op](*given, **kwargs, num_threads=1))
    for rows in (1, 2, 7, 255, 256, 257):
        part = [a[:rows] if len(a) == 257 else a for a in given]
        expected = tuple(y[:rows] for y in whole)
        for threads in (1, 2, 3):
            results = OPS[op](*part, **kwargs, num_threads=threads)
            assert same_bits(rowwise(op, results), expected), (rows, threads)


@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_rows_do_not_depend_on_their_address(op, kwargs, dtype, rng):
    given = arguments(op, (3, 98), dtype, rng)
    expected = OPS[op](*given, **kwargs)
    for offset in range(1, 32, 5):
        moved = []
        for a in given:
            buffer = np.empty(a.size + offset, dtype)
            view = buffer[offset:].reshape(a.shape)
            view[...] = a
            moved.append(view)
        assert same_bits(OPS[op](*moved, **kwargs), expected)


@pytest.mark.parametrize("op", ["silu", "gelu"])
def test_elements_do_not_depend_on_their_place(op, dtype, rng):
    x = rng.normal(size=5000).astype(dtype) * dtype.type(4)
    whole = OPS[op](x)
    for start, stop in ((0, 1), (1, 18), (4999, 5000), (3, 4098), (64, 80)):
        assert same_bits(OPS[op](x[start:stop]), whole[start:stop])
    assert same_bits(OPS[op](x, num_threads=3), whole)

"""Rows that several threads share have the bits of those that one thread computes."""

import numpy as np
import pytest
from cpp_cases import (
    DTYPES,
    OP_VARIANTS,
    OPS,
    arguments,
    as_out,
    as_tuple,
    full_names,
    rowwise,
    same_bits,
    with_argument,
)

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid)")

# Chunks of 4096 elements: whole ones only, a last short one, and one of a single element or pair.
LENGTHS = [16_384, 50_002, 65_538]


def with_many_threads(op, given, kwargs, **more):
    expected = OPS[op](*given, **kwargs, **more, num_threads=1)
    for threads in (2, 3, 7):
        assert same_bits(OPS[op](*given, **kwargs, **more, num_threads=threads), expected)
    return expected


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_one_row(op, kwargs, n, dtype, rng):
    with_many_threads(op, arguments(op, (1, n), dtype, rng), kwargs)


@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_fewer_rows_than_threads(op, kwargs, dtype, rng):
    shape = (2, 3, 20_000)
    rows = with_many_threads(op, arguments(op, shape, dtype, rng), kwargs)
    assert as_tuple(rows)[0].shape == shape


@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_in_place(op, kwargs, dtype, rng):
    given = arguments(op, (1, 50_002), dtype, rng)
    expected = OPS[op](*given, **kwargs, num_threads=1)
    for threads in (1, 2, 5):
        copies = [a.copy() for a in given]
        rows = copies[: len(rowwise(op, expected))]  # which come before sums
        out = [*rows, *map(np.empty_like, as_tuple(expected)[len(rows) :])]
        OPS[op](*copies, **kwargs, out=as_out(out), num_threads=threads)
        assert same_bits(tuple(out), expected)


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e30, 0])
@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_one_extraordinary_element(op, kwargs, value, dtype, rng):
    given = arguments(op, (1, 50_002), dtype, rng)
    given[0][0, 30_001] = value
    with_many_threads(op, given, kwargs)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("op", with_argument("row_vector"))
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64"])
def test_rows_that_need_double(op, scale, name, rng):
    given = arguments(op, (1, 50_002), DTYPES[name], rng)
    for k in range(len(full_names(op))):
        given[k] = (given[k].astype(np.float64) * scale).astype(DTYPES[name])
    with_many_threads(op, given, {})


@pytest.mark.parametrize("scale", [1.0, 0.3, -1.0, 0.0, 1e30])
def test_masked_softmax(scale, dtype, rng):
    (x,) = arguments("softmax", (1, 50_002), dtype, rng)
    x[0, 100:40_000] = -np.inf
    y = with_many_threads("softmax", [x], {"scale": scale}).astype(np.float64)
    if scale == 1:
        assert (y[0, 100:40_000] == 0).all()
        assert abs(y.sum() - 1) < 0.05


def test_gathered_rows_are_not_shared(dtype, rng):
    x, weight = rng.normal(size=(50_002, 1)).astype(dtype), np.ones(50_002, dtype)
    with_many_threads("rms_norm", [x.T[:, ::-1], weight], {})

"""Softmax against its formula in long double."""

import numpy as np
import pytest
from cpp_cases import DTYPES
from long_double import assert_close_rows, softmax, wide

import tensor_ops_cpp as t

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid|underflow|divide)")


@pytest.mark.parametrize("scale", [1, 0.125, -2, 1e-3, 40, 1e25, 1e-25])
@pytest.mark.parametrize("n", [1, 3, 64, 1000, 4099])
def test_softmax(n, scale, dtype, rng):
    size = {"float16": 1}.get(dtype.name, min(1 / scale, 1e25) if scale > 0 else 1)
    x = (rng.normal(size=(4, n)) * 5 * size).astype(dtype)
    assert_close_rows(t.softmax(x, scale), softmax(*wide(x), scale))


def test_softmax_of_large_values(dtype, rng):
    x = (30000 + 30 * rng.normal(size=(4, 500))).astype(dtype)
    assert_close_rows(t.softmax(x), softmax(*wide(x), 1.0))


SPECIAL_ROWS = [
    [1, 2, np.nan],
    [1, np.inf, 3],
    [1, -np.inf, 3],
    [-np.inf, -np.inf, -np.inf],
    [np.inf, np.inf, -np.inf],
    [0, 0, 0],
]


@pytest.mark.parametrize("row", SPECIAL_ROWS)
@pytest.mark.parametrize("scale", [1.0, -1.0, 0.0, 1e30])
def test_softmax_of_special_values(row, scale, dtype):
    x = np.array([row * 30], dtype)
    assert_close_rows(t.softmax(x, scale), softmax(*wide(x), scale))


@pytest.mark.parametrize("scale", [1.0, 1e-38, 0.0, -1.0, 1e300])
@pytest.mark.parametrize("dtype_name", ["float32", "bfloat16"])
def test_softmax_over_the_whole_range(scale, dtype_name):
    x = np.array([[-3e38, 0, 3e38, 1e38, 1]], np.float32)
    x = x.astype(DTYPES[dtype_name])
    assert_close_rows(t.softmax(x, scale), softmax(*wide(x), scale))

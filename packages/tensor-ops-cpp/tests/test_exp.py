"""The error bound that native/kernels/exp.h and exp2.h state."""

import numpy as np
import pytest

from tensor_ops_cpp import _native

# A change of it belongs into both headers too.
BOUND_ULP = 1.1


def error_in_ulp(x):
    """Largest error over x in ULP, below the smallest normal number in that number's ULP."""
    dtype = x.dtype.type
    exact = np.exp(x.astype(np.longdouble))
    unit = np.spacing(np.maximum(exact.astype(dtype), np.finfo(dtype).smallest_normal))
    return np.max(np.abs(_native._exp(x).astype(np.longdouble) - exact) / unit)


@pytest.mark.parametrize(("low", "high"), [(-110, 88.7), (-1, 1), (-1e-3, 1e-3)])
def test_float32(low, high):
    assert error_in_ulp(np.linspace(low, high, 2_000_001, dtype=np.float32)) <= BOUND_ULP


@pytest.mark.parametrize(("low", "high"), [(-760, 709.7), (-1, 1), (-1e-3, 1e-3)])
@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant <= 52, reason="long double is no wider than double"
)
def test_float64(low, high):
    assert error_in_ulp(np.linspace(low, high, 1_000_001)) <= BOUND_ULP


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ends(dtype):
    x = np.array([-np.inf, -1e30, np.nan, 0, 1e30, np.inf], dtype)
    y = _native._exp(x)
    assert np.array_equal(y, np.array([0, 0, np.nan, 1, np.inf, np.inf], dtype), equal_nan=True)

"""Results that are zero have the sign of the exact result."""

import ml_dtypes
import numpy as np
import pytest

from tensor_ops_cuda import gelu, gelu_mul, silu, silu_mul

pytestmark = pytest.mark.usefixtures("device")

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.float64]
UNARY = {
    "silu": silu,
    "gelu": gelu,
    "gelu, exact": lambda x: gelu(x, "none"),
}
PRODUCTS = {
    "silu_mul": silu_mul,
    "gelu_mul": gelu_mul,
    "gelu_mul, exact": lambda gate, up: gelu_mul(gate, up, "none"),
}


def inputs(dtype):
    """Both zeros, the smallest numbers, those whose result underflows, and the limits."""
    tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    below = [-tiny, -3 * tiny, -1e-3, -1.0, -9.0, -20.0, -89.0, -200.0, -800.0, -3e4, -np.inf]
    return np.array([-0.0, *below, 0.0, *(-each for each in below)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("repeats", [1, 7])
def test_activations(name, dtype, repeats):
    """Alone in a vector, and beside other numbers."""
    x = np.repeat(inputs(dtype), repeats)
    y = UNARY[name](x)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(x))
    assert (y[x == 0] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, dtype):
    gate = inputs(dtype)
    gate = gate[np.isfinite(gate)]
    tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    for up in (1.0, 1e-3, tiny, 3e4, 0.0):
        for factor in (up, -up):
            y = PRODUCTS[name](gate, np.full(gate.shape, factor, dtype))
            sign = np.signbit(gate) ^ np.signbit(factor)
            np.testing.assert_array_equal(np.signbit(y), sign, err_msg=f"times {factor}")

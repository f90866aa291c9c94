"""Activations, alone and times another array, against their formulas in long double."""

import os

import ml_dtypes
import numpy as np
import pytest
from cpp_cases import DTYPES
from long_double import (
    Wide,
    assert_close_in_ulp,
    assert_same_specials,
    gelu_erf,
    gelu_tanh,
    silu,
    wide,
)

import tensor_ops_cpp as t

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid|underflow|divide)")


def sweep(dtype):
    """All values of a half type; else random bits and where results are neither 0 nor x."""
    bits = np.dtype(f"u{dtype.itemsize}")
    if dtype.itemsize == 2:
        return np.arange(2**16, dtype=bits).view(dtype)
    rng = np.random.default_rng(7)
    some = rng.integers(0, np.iinfo(bits).max, 50_000, dtype=bits, endpoint=True).view(dtype)
    low = -120 if dtype.itemsize == 4 else -800
    lines = [
        np.linspace(low, 20, 100_001),
        np.linspace(-25, -5, 50_001),
        np.linspace(-3, 3, 50_001),
    ]
    return np.concatenate([some, *[line.astype(dtype) for line in lines]])


def test_level_is_the_one_asked_for():
    assert os.environ.get("TENSOR_OPS_CPP_ISA", t.simd_level) == t.simd_level


def test_activations(dtype):
    x = sweep(dtype)
    bound = {"float32": 3.5, "float64": 3.5}.get(dtype.name, 1)
    assert_close_in_ulp(t.silu(x), silu(*wide(x)), bound)
    assert_close_in_ulp(t.gelu(x), gelu_tanh(*wide(x)), bound)
    assert_close_in_ulp(
        t.gelu(x, "none"), gelu_erf(*wide(x)), 4.5 if dtype == np.float64 else bound
    )


def test_gated_activations(dtype):
    gate = sweep(dtype)
    up = np.random.default_rng(3).normal(size=gate.shape).astype(dtype)
    bound = {"float32": 4, "float64": 4}.get(dtype.name, 1)
    assert_close_in_ulp(t.silu_mul(gate, up), silu(*wide(gate)) * wide(up)[0], bound)
    assert_close_in_ulp(t.gelu_mul(gate, up), gelu_tanh(*wide(gate)) * wide(up)[0], bound)


def test_gate_times_special_up(dtype):
    gate = np.array([-np.inf, -1, 0, 1, np.inf, np.nan], dtype)
    gate, up = (np.ascontiguousarray(a) for a in np.meshgrid(gate, gate))
    assert_same_specials(t.silu_mul(gate, up), silu(*wide(gate)) * wide(up)[0])
    assert_same_specials(t.gelu_mul(gate, up, "none"), gelu_erf(*wide(gate)) * wide(up)[0])


@pytest.mark.parametrize("op", ["silu", "tanh", "erf"])
@pytest.mark.parametrize("dtype_name", ["float32", "bfloat16", "float64"])
def test_tail_of_gate_times_large_up(op, dtype_name, rng):
    """The activation alone is subnormal or zero."""
    dtype = DTYPES[dtype_name]
    low, high, exponent = {
        "silu": [(-190, -80, 127), (-1440, -690, 1023)],
        "tanh": [(-13, -8, 127), (-26, -18, 1023)],
        "erf": [(-19, -10, 127), (-53, -36, 1023)],
    }[op][dtype == np.float64]
    gate = np.linspace(low, high, 5001).astype(dtype)
    up = (2.0 ** rng.uniform(0.8 * exponent, exponent, gate.size)).astype(dtype)
    exact = {"silu": silu, "tanh": gelu_tanh, "erf": gelu_erf}[op](*wide(gate)) * wide(up)[0]
    y = t.silu_mul(gate, up)
    if op != "silu":
        y = t.gelu_mul(gate, up, {"tanh": "tanh", "erf": "none"}[op])
    assert_close_in_ulp(y, exact, {"float32": 4, "float64": 5}.get(dtype_name, 1))


def test_smallest_gate_times_large_up(dtype):
    info = ml_dtypes.finfo(dtype)
    gate = np.array([1, 3, -1, -3], dtype) * info.smallest_subnormal
    up = np.full(4, info.max, dtype)
    exact = (gate.astype(Wide) / 2 * up.astype(Wide)).astype(dtype)
    assert_close_in_ulp(t.silu_mul(gate, up), exact.astype(Wide), 1)
    assert_close_in_ulp(t.gelu_mul(gate, up), exact.astype(Wide), 1)
    assert_close_in_ulp(t.gelu_mul(gate, up, "none"), exact.astype(Wide), 1)


def test_finite_gate_keeps_an_infinite_up_infinite(dtype):
    info = ml_dtypes.finfo(dtype)
    gate = np.array([-info.max, -1, -info.smallest_subnormal, info.max], dtype)
    up = np.full(4, np.inf, dtype)
    for y in (t.silu_mul(gate, up), t.gelu_mul(gate, up), t.gelu_mul(gate, up, "none")):
        assert y.astype(float).tolist() == [-np.inf, -np.inf, -np.inf, np.inf]


def test_signs_of_zeros(dtype):
    """Zeros, and what is too small for the dtype, at every place of a vector."""
    x = np.array([-0.0, 0.0, -np.inf, -20, -50, -200, -2000, -6e4], dtype)
    x = np.concatenate([x, np.ones(100, dtype), x])
    up = np.where(np.arange(x.size) % 3, 1, -1).astype(dtype)
    is_negative = np.signbit(x.astype(float))
    is_product_negative = is_negative ^ (up < 0)
    for approximate in ("tanh", "none"):
        assert np.array_equal(np.signbit(t.gelu(x, approximate)), is_negative)
        found = t.gelu_mul(x, up, approximate)
        assert np.array_equal(np.signbit(found), is_product_negative)
    assert np.array_equal(np.signbit(t.silu(x)), is_negative)
    assert np.array_equal(np.signbit(t.silu_mul(x, up)), is_product_negative)

"""Norms against their formulas in long double."""

import numpy as np
import pytest
from cpp_cases import OPS, arguments
from long_double import (
    HALF,
    Wide,
    assert_close_in_ulp,
    assert_close_rows,
    assert_same_specials,
    layer_norm,
    rms_norm,
    spacing,
    wide,
)

import tensor_ops_cpp as t

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid|underflow|divide)")


SCALES = {
    "ordinary": 1,
    "large": 1e19,
    "huge": 3e37,
    "small": 1e-25,
    "subnormal": 1e-40,
    "one outlier": 1,
}
SCALES_FLOAT16 = {"large": 1e3, "huge": 1e4, "small": 1e-3, "subnormal": 1e-6}


@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 1000, 4097])
def test_norms(n, kind, dtype, rng):
    scale = {**SCALES, **(SCALES_FLOAT16 if dtype == np.float16 else {})}[kind]
    x, residual, weight = arguments("add_rms_norm", (4, n), dtype, rng)
    bias = weight[::-1].copy()
    x, residual = ((a.astype(np.float64) * scale).astype(dtype) for a in (x, residual))
    if kind == "one outlier":
        x[:, 0] = {"float16": 3e4}.get(dtype.name, 1e30)
    for eps in (0, 1e-6):
        assert_close_rows(t.rms_norm(x, weight, eps), rms_norm(*wide(x, weight), eps))
        y, h = t.add_rms_norm(x, residual, weight, eps)
        total = sum(wide(x, residual))
        if dtype == np.float64:
            total = h.astype(Wide)
        assert_close_in_ulp(h, total, 0.5 if dtype.name not in HALF else 0)
        assert_close_rows(y, rms_norm(total, *wide(weight), eps))
    if kind == "one outlier" and dtype.name in HALF:
        return  # results of all sizes around zero: no relative bound
    exact = layer_norm(*wide(x, weight, bias), 1e-5)
    y = t.layer_norm(x, weight, bias)
    if dtype.name in HALF:
        assert_same_specials(y, exact)
        assert np.all(np.abs(y.astype(Wide) - exact) <= spacing(np.abs(exact) + 1, dtype))
    else:
        assert_close_rows(y, exact, np.abs(exact).max(-1, keepdims=True))


def test_layer_norm_of_a_far_mean(dtype, rng):
    shift = {"float16": 200, "bfloat16": 30}.get(dtype.name, 3e4)
    x = (rng.normal(size=(5, 3000)) + shift).astype(dtype)
    exact = layer_norm(*wide(x, np.ones(3000, dtype), np.zeros(3000, dtype)), 1e-5)
    y = t.layer_norm(x, np.ones(3000, dtype))
    if dtype.name in HALF:
        assert_close_in_ulp(y, exact, 2)
    else:
        # In float64 the reference's own mean is good to a few parts in 1e-19 of the shift.
        assert_close_rows(y, exact, np.abs(exact).max(-1, keepdims=True))


@pytest.mark.parametrize("n", [1, 5, 64, 1000, 4099, 50_000])
def test_layer_norm_of_constant_rows_is_the_bias(n, dtype):
    x = np.full((2, n), 0.3, dtype)
    bias = np.arange(n).astype(dtype)
    assert np.array_equal(t.layer_norm(x, np.ones(n, dtype), bias), np.stack([bias, bias]))


@pytest.mark.parametrize("n", [1, 2, 63, 64, 4097, 40_000])
@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-150, 1e152, 1e200, 8e307])
@pytest.mark.parametrize("threads", [1, 3])
def test_float64_rows_whose_squares_leave_the_range(scale, n, threads, rng):
    x, residual = scale * rng.uniform(-2, 2, size=(2, 2, n))
    weight, bias = rng.normal(size=(2, n))
    for eps in (0, min(1e-6 * scale * scale, 1e290)):
        found = t.rms_norm(x, weight, eps, num_threads=threads)
        assert_close_rows(found, rms_norm(*wide(x, weight), eps))
        y, h = t.add_rms_norm(x, residual, weight, eps, num_threads=threads)
        assert_same_specials(h, x + residual)
        assert_close_rows(y, rms_norm(sum(wide(x, residual)), *wide(weight), eps))
        if n == 1:
            continue
        exact = layer_norm(*wide(x, weight, bias), eps)
        found = t.layer_norm(x, weight, bias, eps, num_threads=threads)
        assert_close_rows(found, exact, np.abs(exact).max(-1, keepdims=True))


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
def test_float64_rows_with_an_element_beyond_the_others(op):
    x, weight = np.ones((1, 34)), np.ones(34)
    x[0, 5] = np.finfo(np.float64).max
    exact = {
        "rms_norm": lambda: rms_norm(*wide(x, weight), 1e-6),
        "layer_norm": lambda: layer_norm(*wide(x, weight, 0 * weight), 1e-5),
    }[op]()
    assert_close_rows(OPS[op](x, weight), exact, np.abs(exact).max(-1, keepdims=True))


@pytest.mark.parametrize("value", [0.3, 1e-300, 1e200, 1.7e308])
@pytest.mark.parametrize("eps", [1e-300, 1e-5])
def test_float64_constant_rows_are_the_bias(value, eps):
    x, weight, bias = np.full((2, 33), value), np.ones(33), np.arange(33.0)
    assert np.array_equal(t.layer_norm(x, weight, bias, eps), np.stack([bias, bias]))


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
def test_zero_rows(op, dtype):
    x, weight = np.zeros((1, 10), dtype), np.ones(10, dtype)
    assert (OPS[op](x, weight) == 0).all()
    assert np.isnan(OPS[op](x, weight, eps=0)).all()


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_norms_of_special_values(special, dtype):
    x, weight = np.ones((1, 100), dtype), np.ones(100, dtype)
    x[0, 3] = special
    assert_same_specials(t.rms_norm(x, weight), rms_norm(*wide(x, weight), 1e-6))
    assert np.isnan(t.layer_norm(x, weight)).all()
    y = t.rms_norm(x, weight)
    assert np.isnan(y[0, 3])
    assert np.isnan(special) or (np.delete(y, 3) == 0).all()

"""The ops against their formulas in long double, at the level in use."""

import math
import os
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from cpp_cases import DTYPES, OP_VARIANTS, OPS, arguments, as_tuple, same_bits

import tensor_ops_cpp as t

Wide = np.longdouble
HALF = {"float16", "bfloat16"}
# 2 sqrt(2 / pi)
GELU_RATE = Wide("1.59576912160573071175978423973752747")

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid|underflow|divide)")


def wide(*arrays):
    return [a.astype(Wide) for a in arrays]


def times_sigmoid(x, w):
    e = np.exp(-np.abs(w))
    return np.where(x >= 0, x, np.where(e == 0, 0, x * e)) / (1 + e)


def silu(x):
    return times_sigmoid(x, x)


def gelu_tanh(x):
    return times_sigmoid(x, GELU_RATE * (x + Wide("0.044715") * x * x * x))


def wide_erfc(z):
    """erfc for z >= 0: a continued fraction, or math.erfc with its argument's rounding put back."""
    root_pi = np.sqrt(np.arccos(Wide(-1)))
    z = np.minimum(z, 200)
    fraction = Wide(0)
    for k in range(120, 0, -1):
        fraction = Wide(k) / 2 / (z + fraction)
    far = np.exp(-z * z) / root_pi / (z + fraction)
    rounded = z.astype(np.float64)
    near = np.array([math.erfc(v) for v in rounded.ravel()]).reshape(z.shape).astype(Wide)
    near -= 2 / root_pi * np.exp(-z * z) * (z - rounded)
    return np.where(z > 2, far, near)


def gelu_erf(x):
    tail = wide_erfc(np.abs(x) / np.sqrt(Wide(2))) / 2
    return np.where(tail == 0, np.maximum(x, 0), np.where(x >= 0, x * (1 - tail), x * tail))


def rms_norm(x, weight, eps):
    return x * weight / np.sqrt((x * x).mean(-1, keepdims=True) + Wide(eps))


def layer_norm(x, weight, bias, eps):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + Wide(eps)) * weight + bias


def softmax(x, scale):
    p = Wide(scale) * x
    e = np.exp(p - p.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rope(x, cos, sin):
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def spacing(y, dtype):
    """One ULP of dtype at y."""
    if dtype == np.dtype("bfloat16"):
        return np.maximum(np.spacing(np.abs(y).astype(np.float32)) * Wide(2**16), Wide(2.0**-133))
    return np.spacing(np.abs(y).astype(dtype)).astype(Wide)


def assert_same_specials(y, exact):
    """NaN and Inf in the same places; the places of the finite ones."""
    rounded = exact.astype(y.dtype)
    assert np.array_equal(np.isnan(y), np.isnan(rounded))
    assert np.array_equal(np.isinf(y), np.isinf(rounded))
    return np.isfinite(rounded)


def assert_close_in_ulp(y, exact, bound):
    finite = assert_same_specials(y, exact)
    y, exact, dtype = y[finite].astype(Wide), exact[finite], y.dtype
    smallest = {"float32": 1.18e-38, "float64": 2.3e-308}.get(dtype.name, 0)
    if dtype.name in HALF:
        exact = exact.astype(dtype).astype(Wide)
    error = np.abs(y - exact) / spacing(np.maximum(np.abs(exact), Wide(smallest)), dtype)
    assert np.max(error, initial=0) <= bound


def assert_close_rows(y, exact, relative_to=None):
    """The bounds of norms and softmax."""
    dtype, n = y.dtype, y.shape[-1]
    if dtype.name in HALF:
        assert_close_in_ulp(y, exact, 2)
        return
    finite = assert_same_specials(y, exact)
    rtol = {"float32": 1e-6, "float64": 1e-14}[dtype.name] * max(1, math.sqrt(n) / 32)
    size = np.abs(exact) if relative_to is None else np.broadcast_to(relative_to, y.shape)
    error = np.abs(y.astype(Wide) - exact)[finite]
    floor = {"float32": 1.2e-38, "float64": 2.3e-308}[dtype.name]
    assert np.all(error <= np.maximum(rtol * size[finite], floor))


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


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_of_zeros_does_not_depend_on_the_place(interleaved, dtype):
    x = np.full((1, 2 * 67), -0.0, dtype)
    cos, sin = np.ones((2, 67), dtype)
    y = t.rope(x, cos, sin, interleaved=interleaved).astype(float)
    if dtype != np.float64 or t.has_fma:
        pairs = y.reshape(-1, 2) if interleaved else y.reshape(2, -1).T
        assert (np.signbit(pairs) == np.signbit(pairs[0])).all()


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


def test_rope(dtype, rng):
    x, cos, sin = arguments("rope", (5, 6, 64), dtype, rng)
    # Half of the pairs cancel to the last bits.
    x[::2, :, :32], x[::2, :, 32:] = sin[::2], cos[::2]
    x[::2] = (x[::2] * (1 + 3 * spacing(np.ones(1), dtype))).astype(dtype)
    bound = {"float32": 2, "float64": 2}.get(dtype.name, 1)
    exact = rope_exactly(x, cos, sin)
    assert_close_in_ulp(t.rope(x, cos, sin), exact, bound)
    pairs = np.stack(np.split(x, 2, -1), -1).reshape(x.shape)
    expected = np.stack(np.split(t.rope(x, cos, sin), 2, -1), -1).reshape(x.shape)
    assert same_bits(t.rope(pairs, cos, sin, interleaved=True), expected)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("half", sorted(HALF))
def test_rope_where_products_with_float32_angles_cancel(half, interleaved, rng):
    """One element of each pair is 0 but for the last bits of its cosine or a few of them more."""
    a, b = rng.standard_normal((2, 200, 342)).astype(DTYPES[half])
    sin = rng.standard_normal(a.shape).astype(np.float32)
    first, second = (b / a.astype(float) * sin, -a / b.astype(float) * sin)
    cos = np.where(np.arange(a.shape[-1]) % 3, first, second).astype(np.float32)
    cos = (cos.view(np.int32) + rng.integers(-2, 3, cos.shape, np.int32)).view(np.float32)
    cos[::4] *= 1 + rng.standard_normal(cos[::4].shape).astype(np.float32) * np.float32(2**-11)
    x = np.concatenate([a, b], -1)
    exact = rope(*wide(x, cos, sin))  # long double has room for every digit
    if interleaved:
        x, exact = (np.stack(np.split(v, 2, -1), -1).reshape(v.shape) for v in (x, exact))
    assert_close_in_ulp(t.rope(x, cos, sin, interleaved=interleaved), exact, 1)


def rope_exactly(x, cos, sin):
    if x.dtype != np.float64:
        return rope(*wide(x, cos, sin))

    def exact(arrays):
        a, b, c, d = map(Fraction, map(float, arrays))
        return float(a * c - b * d)

    a, b = np.split(x, 2, -1)
    first = [exact(v) for v in zip(a.flat, b.flat, cos.flat, sin.flat, strict=True)]
    second = [exact(v) for v in zip(b.flat, -a.ravel(), cos.flat, sin.flat, strict=True)]
    halves = [np.array(v).reshape(a.shape) for v in (first, second)]
    return np.concatenate(halves, -1).astype(Wide)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_rope_of_special_values(value, dtype):
    x, cos, sin = np.ones((1, 16), dtype), np.full((1, 8), 0.6, dtype), np.full((1, 8), 0.8, dtype)
    x[0, 3] = value
    x[0, 12] = value
    assert_same_specials(t.rope(x, cos, sin), rope(*wide(x, cos, sin)))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("n", [4, 70, 5000])
def test_rope_where_products_overflow(n, in_place, interleaved, dtype, rng):
    """Right if the difference is an ordinary number; the other elements are as without it."""
    x, cos, sin = arguments("rope", (40, n), dtype, rng)

    def rotate(x):
        out = x.copy() if in_place else None
        return t.rope(x if out is None else out, cos, sin, interleaved=interleaved, out=out)

    before = rotate(x)
    pair = (0, 1) if interleaved else (0, n // 2)
    large = 2.0 ** {"float16": 15, "float64": 1022}.get(dtype.name, 127)
    x[7, pair] = large
    cos[7, 0], sin[7, 0] = 3, 2.5
    x[9, pair] = np.inf
    y = rotate(x)
    if dtype != np.float64:  # where the products have no room to overflow
        assert y[7, pair[0]] == 0.5 * large
    assert np.isinf(y[7, pair[1]])
    assert not np.isfinite(y[9, pair].astype(float)).any()
    for row in (7, 9):
        y[row, pair] = before[row, pair] = 0
    assert same_bits(y, before)


@pytest.mark.parametrize("rows", [1, 2, 7, 255, 256, 257])
@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_rows_do_not_depend_on_their_batch(op, kwargs, rows, dtype, rng):
    given = arguments(op, (257, 132), dtype, rng)
    part = [a[:rows] if len(a) == 257 else a for a in given]
    expected = tuple(y[:rows] for y in as_tuple(OPS[op](*given, **kwargs, num_threads=1)))
    for threads in (1, 2, 3):
        assert same_bits(OPS[op](*part, **kwargs, num_threads=threads), expected)


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

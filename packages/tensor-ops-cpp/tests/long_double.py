"""The formulas of the ops in long double, and how near to them results are."""

import math

import numpy as np

Wide = np.longdouble
HALF = {"float16", "bfloat16"}
# 2 sqrt(2 / pi)
GELU_RATE = Wide("1.59576912160573071175978423973752747")


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

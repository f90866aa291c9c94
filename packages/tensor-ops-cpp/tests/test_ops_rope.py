"""Rotary embeddings against their formula in long double, or in fractions."""

from fractions import Fraction

import numpy as np
import pytest
from cpp_cases import DTYPES, arguments, same_bits
from long_double import HALF, Wide, assert_close_in_ulp, assert_same_specials, rope, spacing, wide

import tensor_ops_cpp as t

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid|underflow|divide)")


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_of_zeros_does_not_depend_on_the_place(interleaved, dtype):
    x = np.full((1, 2 * 67), -0.0, dtype)
    cos, sin = np.ones((2, 67), dtype)
    y = t.rope(x, cos, sin, interleaved=interleaved).astype(float)
    if dtype != np.float64 or t.has_fma:
        pairs = y.reshape(-1, 2) if interleaved else y.reshape(2, -1).T
        assert (np.signbit(pairs) == np.signbit(pairs[0])).all()


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

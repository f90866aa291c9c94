"""Rows of float64 whose sums or squares leave its range, in every form that a row can have."""

import numpy as np
import pytest

from tensor_ops.op import accuracy
from tensor_ops.ops import OPS
from tensor_ops_cuda import add_rms_norm, layer_norm, rms_norm

pytestmark = pytest.mark.usefixtures("device")

# A part of a warp, a warp, a block with few and many vectors of each lane, a cluster, parts.
LENGTHS = (2, 30, 200, 3000, 7000, 9000, 40_000, 70_000, 140_002)
SCALES = (1e308, 1e200, 1e-200, 1e-310)
# Long rows take seconds on an emulation: --nightly adds those of the scales between.
EACH_CASE = pytest.mark.parametrize(
    ("scale", "n"),
    [
        pytest.param(scale, n, marks=[pytest.mark.nightly] * (n > 10_000 and scale in SCALES[1:3]))
        for scale in SCALES
        for n in LENGTHS
    ],
)


def within(name, y, expected):
    measured = accuracy.measure(y, expected, OPS[name].bounds["float64"])
    assert measured.within, f"{measured.problem or measured.error}, allowed {measured.limit}"


def draw(rng, n, scale):
    """Rows of both signs: one of such numbers, one of them beside ordinary ones, one ordinary."""
    x = rng.uniform(0.5, 1.7, (3, n)) * rng.choice([-1, 1], (3, n))
    x[0] *= scale
    x[1, : n // 2] *= scale
    return x


@EACH_CASE
def test_rms_norm(rng, n, scale):
    x, weight = draw(rng, n, scale), rng.normal(size=n)
    for eps in (0.0, 1e-5):
        within("rms_norm", rms_norm(x, weight, eps), wide_rms(x, weight, eps))


@EACH_CASE
def test_add_rms_norm(rng, n, scale):
    """The sum of the largest numbers is infinite, and what is normalised is not."""
    x, weight = draw(rng, n, scale), rng.normal(size=n)
    with np.errstate(over="ignore"):
        total = x + x
    y, h = add_rms_norm(x, x, weight, 0.0)
    np.testing.assert_array_equal(h, total)
    within("add_rms_norm", y, wide_rms(x, weight, 0.0))


@EACH_CASE
def test_layer_norm(rng, n, scale):
    x, weight, bias = draw(rng, n, scale), rng.normal(size=n), rng.normal(size=n)
    x -= x.mean(axis=-1, keepdims=True) if scale < 1e300 else 0
    for eps in (0.0, 1e-5):
        wide = x.astype(np.longdouble)
        wide -= wide.mean(axis=-1, keepdims=True)
        expected = wide_rms(wide, weight, eps) + bias
        within("layer_norm", layer_norm(x, weight, bias, eps), expected)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("value", [1.7e308, -1e200, 1e-200, 5e-324, 0.0])
@pytest.mark.sampled(2, "n", "value")
def test_rows_of_equal_elements(n, value):
    x, ones = np.full((2, n), value), np.ones(n)
    for eps in (1e-5, 1e-300):
        np.testing.assert_array_equal(layer_norm(x, ones, 3 * ones, eps), np.full((2, n), 3.0))


@pytest.mark.parametrize("n", LENGTHS)
def test_eps_counts(n):
    """An eps of the size of the squares matters, also where both are out of range."""
    x, ones = np.full((1, n), 1e-150), np.ones(n)
    np.testing.assert_allclose(rms_norm(x, ones, 3e-300), np.full((1, n), 0.5), rtol=4e-15)
    x = np.where(np.arange(n) % 2, 1e153, -1e153)[None]
    np.testing.assert_allclose(abs(layer_norm(x, ones, None, 3e306)), 0.5 * (x * 0 + 1), rtol=4e-15)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("special", [np.inf, np.nan])
def test_infinities_and_nan_are_what_they_were(rng, n, special):
    x = rng.normal(size=(2, n))
    x[1, n // 3] = special
    y, ones = rms_norm(x, np.ones(n)), np.ones(n)
    assert np.isfinite(y[0]).all()
    expected = np.full(n, np.nan) if np.isnan(special) else np.where(np.isinf(x[1]), np.nan, 0)
    np.testing.assert_array_equal(y[1], expected)
    assert np.isnan(layer_norm(x, ones)[1]).all()


def wide_rms(x, weight, eps):
    """Root mean square normalisation in extended precision, whose range holds all squares."""
    wide = x.astype(np.longdouble)
    mean = np.square(wide).mean(axis=-1, keepdims=True) + np.longdouble(eps)
    return wide / np.sqrt(mean) * weight

"""Precision of keys and values in caches."""

import numpy as np
import pytest

from tensor_ops_decode.kinds.cache_types import rounded
from tensor_ops_decode.program import Cache


@pytest.mark.parametrize(
    ("dtype", "size", "expected"),
    [("float32", 64, 512), ("float16", 64, 256), ("int8", 64, 136), ("int8", 40, 88)],
)
def test_a_token_takes_its_numbers_and_their_scales(dtype, size, expected):
    assert Cache(3, size, dtype, paged=True).bytes_per_token == 3 * expected


def test_groups_of_int8_have_scales_of_their_own():
    x = np.random.default_rng(0).standard_normal((5, 40)) * np.r_[np.ones(32), np.full(8, 1e-3)]
    error = np.abs(rounded("int8", x) - x)
    for group in (slice(32), slice(32, 40)):
        largest = np.abs(x[:, group]).max(axis=1, keepdims=True)
        assert (error[:, group] <= largest / 127 * (0.5 + 127 * 2.0**-11)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_int8_keeps_is_kept_again(dtype):
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(dtype)
    once = rounded("int8", x)
    assert once.dtype == dtype
    np.testing.assert_array_equal(rounded("int8", once), once)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e8])
def test_a_group_with_what_has_no_scale_becomes_nan(value):
    x = np.ones((1, 64))
    x[0, 3] = value
    kept = rounded("int8", x)
    assert np.isnan(kept[:, :32]).all()
    np.testing.assert_allclose(kept[:, 32:], 1, rtol=2.0**-10)


def test_a_group_without_a_scale_is_zero():
    assert not rounded("int8", np.full((1, 32), 1e-9)).any()

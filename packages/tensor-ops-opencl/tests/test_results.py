"""Memory of results, which is used again when nobody holds it."""

import gc

import numpy as np
import pytest

import tensor_ops_opencl as t
from tensor_ops_opencl import results

X = np.linspace(-4, 4, 200_000, dtype=np.float32)


@pytest.fixture(autouse=True)
def empty_pool():
    limit = t.pool_info()["limit"]
    t.trim_pool()
    yield
    t.set_pool_limit(limit)
    t.trim_pool()


def address(array):
    return array.__array_interface__["data"][0]


def test_a_freed_result_makes_room_for_the_next(device):
    first = t.silu(X)
    place = address(first)
    del first
    assert t.pool_info()["held_blocks"] == 1
    assert address(t.gelu(X)) == place


def test_results_begin_at_a_page(device):
    for size in (1024, 4096, 100_000, 300_001):
        assert address(t.silu(X[:1].repeat(size))) % results.PAGE == 0


def test_a_view_keeps_its_memory(device):
    result = t.silu(X)
    wanted = result[1000:1100].copy()
    views = [result[1000:1100], np.asarray(memoryview(result))[1000:1100]]
    del result
    gc.collect()
    others = [t.gelu(-X) for _ in range(3)]
    assert all(not np.shares_memory(view, other) for view in views for other in others)
    for view in views:
        np.testing.assert_array_equal(view, wanted)


def test_the_limit_holds(device):
    t.set_pool_limit(2 * X.nbytes)
    kept = [t.silu(X) for _ in range(4)]
    del kept
    assert 0 < t.pool_info()["held_bytes"] <= 2 * X.nbytes
    assert t.trim_pool() > 0
    assert t.pool_info()["held_bytes"] == 0
    t.set_pool_limit(0)
    t.silu(X)
    assert t.pool_info()["held_blocks"] == 0


def test_what_nobody_asks_for_is_given_back(device, monkeypatch):
    t.silu(X)
    assert t.pool_info()["held_blocks"] == 1
    monkeypatch.setattr(results, "LONGEST_IDLE", -1.0)
    t.silu(X[:150_000])
    assert t.pool_info()["held_blocks"] == 0


@pytest.mark.parametrize(
    ("wrong", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_a_limit_that_is_none(wrong, error):
    with pytest.raises(error, match="set_pool_limit: bytes must be"):
        t.set_pool_limit(wrong)


@pytest.mark.parametrize("size", [2**17, 2**17 + 1, 10**6, 33_554_432, 33_554_433])
def test_blocks_are_at_most_an_eighth_larger(size):
    assert size <= results.rounded_size(size) <= size * 9 / 8 + results.PAGE

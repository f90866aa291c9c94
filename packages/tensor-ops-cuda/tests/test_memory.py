"""Devices that have no memory left."""

import ctypes
import gc

import numpy as np
import pytest

import tensor_ops_cuda
from tensor_ops_cuda import rms_norm, silu, to_device


@pytest.fixture
def limit(runtime):
    """A function that sets how many bytes the device has beside those in use."""

    def leave(count):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        gc.collect()
        runtime.cudaDeviceSynchronize()
        runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        used = total.value - free.value
        runtime.set_memory(device=used + count)

    yield leave
    runtime.set_memory()


def test_chunks_shrink_until_they_fit(rng, limit):
    x = rng.normal(size=(2000, 100)).astype(np.float32)
    expected = silu(x)
    limit(100_000)
    np.testing.assert_array_equal(silu(x), expected)


def test_not_even_a_row_fits(rng, limit, runtime):
    x, weight = rng.normal(size=(4, 10_000)).astype(np.float32), np.ones(10_000, np.float32)
    expected = rms_norm(x, weight)
    limit(50_000)
    with pytest.raises(MemoryError, match=r"rms_norm: cuda:0 has no memory for a row of 10000 el"):
        rms_norm(x, weight)
    runtime.set_memory()
    np.testing.assert_array_equal(rms_norm(x, weight), expected)


def test_in_place_is_all_or_nothing(rng, limit):
    x, weight = rng.normal(size=(4, 10_000)).astype(np.float32), np.ones(10_000, np.float32)
    before = x.copy()
    limit(50_000)
    with pytest.raises(MemoryError):
        rms_norm(x, weight, out=x)
    np.testing.assert_array_equal(x, before)


def test_device_arrays(rng, limit, runtime):
    x = to_device(rng.normal(size=100_000).astype(np.float32))
    limit(1000)
    with pytest.raises(MemoryError, match="cudaMallocAsync failed: cudaErrorMemoryAllocation"):
        silu(x)
    with pytest.raises(MemoryError):
        to_device(np.zeros(10_000, np.float32))
    runtime.set_memory()
    assert silu(x).shape == x.shape


def test_memory_that_is_released_later(limit):
    """An allocation waits for releases that the stream has not come to yet."""
    x = to_device(np.ones(100_000, np.float32))
    limit(900_000)
    for _ in range(20):
        y = silu(x)
    np.testing.assert_array_equal(y.numpy(), silu(np.ones(100_000, np.float32)))
    assert tensor_ops_cuda.probe()["available"]

"""Eight threads at once, and several devices."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tensor_ops_cuda import add_rms_norm, rms_norm, silu, to_device


def draw(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("kind", ["host", "device"])
def test_calls_of_eight_threads(kind):
    place = to_device if kind == "device" else np.asarray
    fetch = (lambda array: array.numpy()) if kind == "device" else np.asarray
    weight = draw(99, 64)

    def work(seed):
        results = []
        for step in range(6):
            x = draw(100 * seed + step, 1 + 3 * step, 64)
            y, h = add_rms_norm(place(x), place(x), place(weight))
            results += [(x, fetch(y)), (x, fetch(silu(h)))]
        return results

    with ThreadPoolExecutor(8) as pool:
        everything = list(pool.map(work, range(8)))
    for results in everything:
        for (x, y), (_, z) in zip(results[::2], results[1::2], strict=True):
            expected = add_rms_norm(x, x, weight)
            np.testing.assert_array_equal(y, expected[0])
            np.testing.assert_array_equal(z, silu(expected[1]))


@pytest.mark.usefixtures("small_chunks")
def test_chunks_of_eight_threads():
    weight = draw(99, 64)
    arrays = [draw(seed, 40 + seed, 64) for seed in range(16)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda x: rms_norm(x, weight), arrays))
    for x, y in zip(arrays, results, strict=True):
        np.testing.assert_array_equal(y, rms_norm(x, weight))

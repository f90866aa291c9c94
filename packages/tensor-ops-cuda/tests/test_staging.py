"""NumPy arrays: chunks through pinned memory, whatever they are cut from."""

import gc

import numpy as np
import pytest

import tensor_ops_cuda
from tensor_ops_cuda import add_rms_norm, rms_norm, rope, silu, silu_mul

pytestmark = pytest.mark.usefixtures("device")


def draw(rng, *shape, dtype=np.float32):
    return rng.normal(size=shape).astype(dtype)


def with_one_chunk(function):
    """Return what a call gives where it is not cut."""
    from tensor_ops_cuda import _native

    before = _native.chunk_bytes()
    _native.set_chunk_bytes(2**40)
    try:
        return function()
    finally:
        _native.set_chunk_bytes(before)


VIEWS = {
    "contiguous": lambda a: a,
    "every second element": lambda a: a[..., ::2],
    "reversed": lambda a: a[::-1, :, ::-1],
    "turned": lambda a: a.T,
    "repeated": lambda a: np.broadcast_to(a[:1], a.shape),
    "one row": lambda a: a.reshape(-1),
    "column": lambda a: a.reshape(-1, 1),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_chunks_make_no_difference(small_chunks, rng, view, dtype):
    x, up = (VIEWS[view](draw(rng, 13, 7, 24, dtype=dtype)) for _ in range(2))
    weight = draw(rng, 2 * x.shape[-1], dtype=dtype)[::2]
    for call in (lambda: silu_mul(x, up), lambda: rms_norm(x, weight)):
        np.testing.assert_array_equal(call(), with_one_chunk(call))


@pytest.mark.parametrize("shape", [(8,), (5, 8), (13, 1, 8), (1, 5, 1), (13, 5, 8)])
def test_chunks_of_repeating_arrays(small_chunks, rng, shape):
    """Repeated values go up once, and each chunk finds its part of them."""
    x, cos, sin = draw(rng, 13, 5, 16), draw(rng, *shape), draw(rng, *shape)
    np.testing.assert_array_equal(rope(x, cos, sin), with_one_chunk(lambda: rope(x, cos, sin)))


@pytest.mark.parametrize("view", ["contiguous", "every second element", "turned", "reversed"])
def test_out_of_any_strides(small_chunks, rng, view):
    memory = np.full((13, 7, 48), 7, np.float32)
    out = VIEWS[view](memory[..., ::2])
    x = draw(rng, *out.shape)
    assert silu(x, out=out) is out
    np.testing.assert_array_equal(out, silu(x))
    assert (memory[..., 1::2] == 7).all()


def test_in_place(small_chunks, rng):
    x, residual, weight = draw(rng, 50, 40), draw(rng, 50, 40), draw(rng, 40)
    expected = add_rms_norm(x, residual, weight)
    add_rms_norm(x, residual, weight, out=(residual, x))
    np.testing.assert_array_equal(residual, expected[0])
    np.testing.assert_array_equal(x, expected[1])


def test_rows_longer_than_a_chunk(small_chunks, rng):
    x, weight = draw(rng, 3, 5000), draw(rng, 5000)
    np.testing.assert_array_equal(rms_norm(x, weight), with_one_chunk(lambda: rms_norm(x, weight)))


def test_unaligned(rng):
    raw = np.zeros(4 * 60 + 1, np.uint8)
    x = raw[1:].view(np.float32)
    x[:] = draw(rng, 60)
    np.testing.assert_array_equal(silu(x), silu(x.copy()))
    expected = silu(x)
    np.testing.assert_array_equal(silu(x, out=x), expected)


def test_memory_of_results_is_used_again(rng):
    x = draw(rng, 300, 1000)
    y = silu(x)
    address = y.__array_interface__["data"][0]
    before = tensor_ops_cuda.pool_info()
    assert before["used_bytes"] >= y.nbytes
    del y
    gc.collect()
    after = tensor_ops_cuda.pool_info()
    assert after["held_bytes"] > before["held_bytes"]
    assert silu(x).__array_interface__["data"][0] == address


def test_a_view_keeps_the_memory_of_a_result(rng):
    x = draw(rng, 300, 1000)
    row = silu(x)[7]
    for _ in range(3):
        silu(-x)
    np.testing.assert_array_equal(row, silu(x[7]))


def test_pool_limit(rng):
    before = tensor_ops_cuda.pool_info()["limit"]
    x = draw(rng, 300, 1000)
    try:
        tensor_ops_cuda.set_pool_limit(0)
        y = silu(x)
        del y
        gc.collect()
        assert tensor_ops_cuda.pool_info()["held_bytes"] == 0
        tensor_ops_cuda.set_pool_limit(2**30)
        silu(x)
        gc.collect()
        held = tensor_ops_cuda.pool_info()["held_bytes"]
        assert held > 0
        assert tensor_ops_cuda.trim_pool() == held
    finally:
        tensor_ops_cuda.set_pool_limit(before)


@pytest.mark.parametrize(
    ("value", "error"), [(-1, ValueError), (True, TypeError), (1.5, TypeError), ("1", TypeError)]
)
def test_bad_pool_limit(value, error):
    with pytest.raises(error, match="set_pool_limit: bytes must be"):
        tensor_ops_cuda.set_pool_limit(value)


@pytest.fixture
def no_pinned_memory(runtime):
    """A device whose driver pins no memory of the host."""
    tensor_ops_cuda.trim_pool()
    runtime.set_memory(pinned=1)
    yield
    runtime.set_memory()


def test_pinned_memory_that_is_refused(no_pinned_memory, runtime, rng):
    """The driver's own way is taken, and nobody notices."""
    x = draw(rng, 300, 1000)
    for _ in range(2):
        y = silu(x)
    runtime.set_memory()
    assert y.base is None
    np.testing.assert_array_equal(y, silu(x))


def test_results_as_arguments(rng):
    """Pinned memory goes up and comes down without another copy."""
    x = draw(rng, 300, 1000)
    pinned = silu(x)
    np.testing.assert_array_equal(silu(pinned), silu(pinned.copy()))
    expected = silu(pinned)
    np.testing.assert_array_equal(silu(pinned, out=pinned), expected)


def test_empty_arrays():
    for shape in ((0,), (3, 0), (0, 4), (2, 0, 4)):
        assert silu(np.zeros(shape, np.float32)).shape == shape
        assert rms_norm(np.zeros(shape, np.float32), np.zeros(shape[-1], np.float32)).shape == shape

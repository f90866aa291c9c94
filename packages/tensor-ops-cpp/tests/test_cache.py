"""Results that are written past the caches have the bits of those that are not."""

import ml_dtypes
import numpy as np
import pytest
from cpp_cases import OP_VARIANTS, OPS, arguments, as_out, as_tuple, same_bits

from tensor_ops_cpp import _native

ALWAYS, NEVER, MEASURED = 1, 2**62, 0


@pytest.fixture(autouse=True)
def measured_threshold():
    yield
    _native.set_streaming_threshold(MEASURED)


def both_ways(op, given, kwargs, make_out=None, **more):
    results = []
    for threshold in (NEVER, ALWAYS):
        _native.set_streaming_threshold(threshold)
        out = make_out() if make_out else None
        results.append(OPS[op](*given, **kwargs, out=out, **more))
    assert same_bits(*results)


def shifted(shape, dtype, elements):
    """An array that begins so many elements after a multiple of 64 bytes."""
    size = int(np.prod(shape))
    buffer = np.empty(size + 64 + elements, dtype)
    begin = -buffer.ctypes.data % 64 // dtype.itemsize + elements
    return buffer[begin : begin + size].reshape(shape)


@pytest.mark.parametrize("shape", [(1, 4096), (37, 300), (5, 1002), (64, 128), (3, 66), (7, 2)])
@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_shapes(op, kwargs, shape, dtype, rng):
    given = arguments(op, shape, dtype, rng)
    for threads in (1, 3):
        both_ways(op, given, kwargs, num_threads=threads)


@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_long_rows(op, kwargs, dtype, rng):
    given = arguments(op, (3, 70_002), dtype, rng)
    for threads in (1, 2, 5):
        both_ways(op, given, kwargs, num_threads=threads)


@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_rows_that_need_care_between_others(op, kwargs, dtype, rng):
    x, *more = arguments(op, (9, 4096), dtype, rng)
    x[1, 5] = np.nan
    x[2], x[4] = ml_dtypes.finfo(dtype).max, 0
    x[5, 7] = -np.inf
    x[7, 100] = np.inf
    with np.errstate(all="ignore"):
        both_ways(op, (x, *more), kwargs, num_threads=1)


@pytest.mark.parametrize("elements", [0, 1, 3, 17])
@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_addresses(op, kwargs, elements, dtype, rng):
    shape = (5, 1002)
    given = arguments(op, shape, dtype, rng)
    expected = as_tuple(OPS[op](*given, **kwargs))

    def make_out():
        return as_out([shifted(y.shape, dtype, elements * (k + 1)) for k, y in enumerate(expected)])

    both_ways(op, given, kwargs, make_out)


@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_rows_with_gaps(op, kwargs, dtype, rng):
    given = arguments(op, (6, 500), dtype, rng)
    expected = as_tuple(OPS[op](*given, **kwargs))

    def make_out():
        return as_out([np.zeros((*y.shape[:-1], 777), dtype)[..., 5:505] for y in expected])

    both_ways(op, given, kwargs, make_out)


@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_nothing_is_written_beside_the_result(op, kwargs, dtype, rng):
    given = arguments(op, (6, 501 * 2), dtype, rng)
    expected = as_tuple(OPS[op](*given, **kwargs))
    frames = [np.full((8, 1100), 7, dtype) for _ in expected]
    outs = [
        frame[1:7, 50:1052] if y.ndim > 1 else frame[1, 50:1052]
        for frame, y in zip(frames, expected, strict=True)
    ]
    _native.set_streaming_threshold(ALWAYS)
    OPS[op](*given, **kwargs, out=as_out(outs))
    for frame, out in zip(frames, outs, strict=True):
        out[...] = 7
        assert (frame == 7).all()


def test_threshold_follows_the_cache():
    assert _native.streaming_threshold() == _native.cache_size() > 0

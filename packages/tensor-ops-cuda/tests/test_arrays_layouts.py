"""Layouts of device arrays: kernels see rows, whatever the strides."""

import itertools

import numpy as np
import pytest
from emulated import InterfaceArray

import tensor_ops_cuda
from tensor_ops_cuda import rms_norm, rope, silu, silu_mul

VIEWS = {
    "contiguous": lambda a: a[0, 0],
    "padded rows": lambda a: a[..., 2:-3],
    "every second row": lambda a: a[:, ::2],
    "every second element": lambda a: a[..., ::2],
    "reversed rows": lambda a: a[:, ::-1],
    "reversed elements": lambda a: a[..., ::-1],
    "turned": lambda a: a.T,
    "first axes swapped": lambda a: a.swapaxes(0, 1),
    "axes of length 1": lambda a: a[:1, :, None],
    "repeated rows": lambda a: np.broadcast_to(a[0, :1], a[0].shape),
    "repeated elements": lambda a: np.broadcast_to(a[..., :1], a.shape),
    "one element": lambda a: a[:1, :1, :1],
}
SHAPES = {name: view(np.zeros((3, 4, 24))).shape for name, view in VIEWS.items()}
PAIRS = [
    (first, second)
    for first, second in itertools.product(VIEWS, repeat=2)
    if SHAPES[first] == SHAPES[second]
]


@pytest.fixture
def on_device(runtime):
    return lambda view: InterfaceArray.of(runtime, view)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_elementwise(on_device, rng, first, second):
    """Each operand has its own layout."""
    base = rng.normal(size=(2, 3, 4, 24)).astype(np.float32)
    gate, up = VIEWS[first](base[0]), VIEWS[second](base[1])
    y = silu_mul(on_device(gate), on_device(up))
    np.testing.assert_array_equal(y.numpy(), silu_mul(gate.copy(), up.copy()))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows(on_device, rng, view, dtype):
    x = VIEWS[view](rng.normal(size=(3, 4, 24)).astype(dtype))
    weight = rng.normal(size=2 * x.shape[-1]).astype(dtype)[::-2]
    y = rms_norm(on_device(x), on_device(weight))
    np.testing.assert_array_equal(y.numpy(), rms_norm(x.copy(), weight.copy()))


@pytest.mark.parametrize(
    "shape", [(), (1,), (12,), (1, 12), (4, 12), (3, 1, 12), (3, 4, 1), (1, 1, 1)]
)
def test_half_rows_that_repeat(on_device, rng, shape):
    x = rng.normal(size=(3, 4, 24)).astype(np.float32)
    angles = np.asarray(rng.normal(size=shape))
    cos, sin = (np.asarray(f(angles), np.float32) for f in (np.cos, np.sin))
    full = [np.broadcast_to(each, (3, 4, 12)).copy() for each in (cos, sin)]
    expected = rope(x, *full)
    np.testing.assert_array_equal(rope(*map(on_device, (x, cos, sin))).numpy(), expected)
    np.testing.assert_array_equal(rope(x, cos, sin), expected)


def test_more_axes_than_kernels_take(on_device, rng):
    """Sixteen axes of which no two lie one after another."""
    base = rng.normal(size=(3,) * 8).astype(np.float32)
    view = base[(slice(0, 2),) * 8].transpose(7, 6, 5, 4, 3, 2, 1, 0)
    many = np.broadcast_to(view[:, None, :, None, :, None, :, None], (2, 2) * 4 + (2,) * 4)
    assert many.ndim == 12
    more = many[:, None, :, None, :, None]
    for x in (view, many, more):
        np.testing.assert_array_equal(silu(on_device(x)).numpy(), silu(x.copy()))
        weight = rng.normal(size=2).astype(np.float32)
        got = rms_norm(on_device(x), on_device(weight))
        np.testing.assert_array_equal(got.numpy(), rms_norm(x.copy(), weight))


@pytest.mark.parametrize("view", ["every second element", "turned", "reversed elements"])
def test_results_are_scattered(on_device, runtime, rng, view):
    """Not one element beside `out` changes."""
    x = rng.normal(size=(3, 4, 24)).astype(np.float32)
    memory = np.full((3, 4, 48), 7, np.float32)
    place = VIEWS[view](memory[..., ::2])
    x = np.resize(x, place.shape)
    out = on_device(place)
    silu(on_device(x), out=out)
    np.testing.assert_array_equal(out.numpy(), silu(x))
    first = place.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    place[...] = silu(x)
    got = runtime.read(out.address - first, memory.size, np.float32)
    np.testing.assert_array_equal(got, memory.ravel())


def test_in_place_of_strided_elements(on_device, rng):
    base = rng.normal(size=(4, 60)).astype(np.float32)
    x = on_device(base[:, ::3])
    weight = rng.normal(size=20).astype(np.float32)
    rms_norm(x, on_device(weight), out=x)
    np.testing.assert_array_equal(x.numpy(), rms_norm(base[:, ::3], weight))


def test_results_are_contiguous(device, rng):
    x = tensor_ops_cuda.to_device(rng.normal(size=(4, 5)).astype(np.float32).T)
    assert silu(x).strides == (16, 4)

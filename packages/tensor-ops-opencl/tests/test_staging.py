"""Devices with memory of their own: the same results through pinned memory, in pieces."""

import numpy as np
import pytest
from reference import DTYPES, OPS, as_tuple, calls

import tensor_ops_opencl
from tensor_ops_opencl import staging


@pytest.fixture
def staged(use_device, monkeypatch):
    """The device as if it had memory of its own, and pieces of a few rows."""
    monkeypatch.setattr(staging, "PIECE", 3 * 64 * 4)
    return use_device(shares_memory=False)


def in_place_of_host(name, values):
    """Return the results of the device as it is."""
    return as_tuple(tensor_ops_opencl.ops[name](**values))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPS)
def test_the_same_bits(name, dtype, device, request):
    shapes = [(2, 5, 64), (1, 2), (3, 2, 3, 66), (40, 6)]
    all_values = [values for shape in shapes for values in calls(name, shape, dtype)]
    wanted = [in_place_of_host(name, values) for values in all_values]
    request.getfixturevalue("staged")
    for values, results in zip(all_values, wanted, strict=True):
        for got, each in zip(in_place_of_host(name, values), results, strict=True):
            assert got.tobytes() == each.tobytes()


@pytest.mark.parametrize("name", OPS)
def test_layouts_and_in_place(name, staged):
    (values, *_) = calls(name, (4, 5, 66), "float32")
    wanted = in_place_of_host(name, values)
    strided = {
        key: np.asfortranarray(value) if isinstance(value, np.ndarray) else value
        for key, value in values.items()
    }
    outs = tuple(np.asfortranarray(np.empty((4, 5, 66), np.float32)) for _ in wanted)
    out = outs if len(outs) > 1 else outs[0]
    tensor_ops_opencl.ops[name](**strided, out=out)
    for got, each in zip(outs, wanted, strict=True):
        np.testing.assert_array_equal(got, each)
    full = [key for key, kind in OPS[name].kinds.items() if kind.is_full][: len(wanted)]
    targets = {key: values[key].copy() for key in full}
    out = tuple(targets.values()) if len(full) > 1 else targets[full[0]]
    tensor_ops_opencl.ops[name](**(values | targets), out=out)
    for got, each in zip(targets.values(), wanted, strict=True):
        np.testing.assert_array_equal(got, each)


def test_a_failure_leaves_nothing_behind(staged, monkeypatch):
    x = np.arange(640, dtype=np.float32).reshape(10, 64)
    wanted = tensor_ops_opencl.silu(x)
    with monkeypatch.context() as patch:
        calls_made = []

        def failing(self, *args):
            calls_made.append(args)
            if len(calls_made) == 3:
                raise RuntimeError("the bus is gone")
            return fetch(self, *args)

        fetch = staging.Lane.fetch
        patch.setattr(staging.Lane, "fetch", failing)
        with pytest.raises(RuntimeError, match="the bus is gone"):
            tensor_ops_opencl.silu(-x)
    np.testing.assert_array_equal(tensor_ops_opencl.silu(x), wanted)

"""Arrays with __cuda_array_interface__, as Numba's have."""

import sys
import types

import numpy as np
import pytest
from emulated import InterfaceArray

import tensor_ops_cuda
from tensor_ops_cuda import silu


def test_result_is_a_device_array(runtime, rng):
    host = rng.normal(size=(6, 10)).astype(np.float32)[::2, ::-1]
    y = silu(InterfaceArray.of(runtime, host))
    assert type(y) is tensor_ops_cuda.DeviceArray
    np.testing.assert_array_equal(y.numpy(), silu(host))


def test_stream_entry_is_honoured(runtime):
    stream = runtime.stream()
    x = InterfaceArray.of(runtime, np.full(30, np.nan, np.float32), stream=stream)
    values = np.linspace(-3, 3, 30, dtype=np.float32)
    runtime.upload_later(x.address, runtime.pinned(values), values.nbytes, stream)
    y = silu(x)
    assert not runtime.is_idle(stream)
    assert y.__cuda_array_interface__["stream"] == stream
    np.testing.assert_array_equal(y.numpy(), silu(values))


@pytest.mark.parametrize(("stream", "expected"), [(None, 1), (1, 1), (2, 2)])
def test_default_streams(runtime, stream, expected):
    y = silu(InterfaceArray.of(runtime, np.ones(4, np.float32), stream=stream))
    assert y.__cuda_array_interface__["stream"] == expected
    np.testing.assert_array_equal(y.numpy(), silu(np.ones(4, np.float32)))


def test_numbas_own_type(runtime, monkeypatch):
    seen = []
    numba = types.ModuleType("numba.cuda")
    numba.as_cuda_array = lambda array, sync: seen.append(sync) or ("numba", array)
    monkeypatch.setitem(sys.modules, "numba.cuda", numba)

    class DeviceNDArray:
        __module__ = "numba.cuda.cudadrv.devicearray"
        memory = InterfaceArray.of(runtime, np.ones(4, np.float32))
        __cuda_array_interface__ = property(lambda self: self.memory.__cuda_array_interface__)

    kind, array = silu(DeviceNDArray())
    assert (kind, seen) == ("numba", [False])
    np.testing.assert_array_equal(array.numpy(), silu(np.ones(4, np.float32)))


def test_read_only_out(runtime):
    x, out = (InterfaceArray.of(runtime, np.ones(4, np.float32)) for _ in range(2))
    out.read_only = True
    with pytest.raises(ValueError, match="silu: out is read-only"):
        silu(x, out=out)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mask": object()}, "has a mask"),
        ({"stream": 0}, "has 0 as stream"),
        ({"data": 5}, r"has no \(address, read-only flag\)"),
        ({"typestr": ">f4"}, "byte order"),
        ({"strides": (1, 2)}, "has not as many strides"),
        ({"data": (2**40, False)}, "not in a device's memory"),
    ],
)
def test_bad_interface(runtime, change, says):
    x = InterfaceArray.of(runtime, np.ones(4, np.float32))
    holder = types.SimpleNamespace(__cuda_array_interface__=x.__cuda_array_interface__ | change)
    with pytest.raises(TypeError, match=f"silu: x's __cuda_array_interface__ .*{says}"):
        silu(holder)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shape": (-4,)}, r"has a negative length: \(-4,\)$"),
        ({"shape": (4, -8)}, "has a negative length"),
        ({"shape": (-4, -8)}, "has a negative length"),
        ({"shape": (2**32, 2**32), "strides": (0, 0)}, "is more than fits into memory"),
        ({"shape": (2**61,)}, r"is more than fits into memory: \(2305843009213693952,\)$"),
    ],
)
def test_shapes_that_no_array_has(runtime, change, says):
    x = InterfaceArray.of(runtime, np.ones(4, np.float32))
    holder = types.SimpleNamespace(__cuda_array_interface__=x.__cuda_array_interface__ | change)
    with pytest.raises(ValueError, match=f"silu: x's __cuda_array_interface__ .*{says}"):
        silu(holder)


def test_large_lengths_beside_one_of_zero(runtime):
    x = InterfaceArray.of(runtime, np.ones((2, 0), np.float32))
    shape = {"shape": (0, 2**40, 2**40), "strides": (2**50, 4, 4)}
    holder = types.SimpleNamespace(__cuda_array_interface__=x.__cuda_array_interface__ | shape)
    assert silu(holder).shape == (0, 2**40, 2**40)


def test_attribute_of_the_instance_alone(runtime):
    x = InterfaceArray.of(runtime, np.ones(4, np.float32))
    holder = types.SimpleNamespace(__cuda_array_interface__=x.__cuda_array_interface__)
    np.testing.assert_array_equal(silu(holder).numpy(), silu(np.ones(4, np.float32)))


def test_unaligned(runtime):
    memory = runtime.memory(np.zeros(64, np.uint8))
    with pytest.raises(
        ValueError, match="silu: x's elements do not lie at multiples of their 4 bytes"
    ):
        silu(InterfaceArray(runtime, memory + 2, (4,), (1,), "float32"))

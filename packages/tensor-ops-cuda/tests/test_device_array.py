"""DeviceArray: to the device and back, and to other libraries."""

import ctypes
import gc
import pickle
import weakref

import ml_dtypes
import numpy as np
import pytest
from emulated import Array, from_capsule

import tensor_ops_cuda
from tensor_ops_cuda import DeviceArray, rms_norm, silu, silu_mul, to_device


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 4), (0, 3)])
def test_round_trip(device, rng, dtype, shape):
    host = np.asarray(rng.normal(size=shape)).astype(dtype)
    x = to_device(host)
    assert (x.shape, x.dtype, x.nbytes, x.ndim, x.size) == (
        host.shape, host.dtype, host.nbytes, host.ndim, host.size,
    )  # fmt: skip
    assert x.strides == np.empty(shape, dtype).strides or 0 in shape
    assert x.device == f"cuda:{device.index}"
    back = x.numpy()
    assert back.dtype == host.dtype
    np.testing.assert_array_equal(back, host)


def test_of_any_strides(device, rng):
    base = rng.normal(size=(6, 7, 8)).astype(np.float32)
    for view in (base.T, base[::2, ::-1], base[:, 3], np.broadcast_to(base[0], (4, 7, 8))):
        np.testing.assert_array_equal(to_device(view).numpy(), view)


def test_ops(device, rng):
    x, up = (rng.normal(size=(4, 30)).astype(np.float32) for _ in range(2))
    y = silu_mul(to_device(x), to_device(up))
    assert type(y) is DeviceArray
    np.testing.assert_array_equal(y.numpy(), silu_mul(x, up))
    out = to_device(x)
    assert silu(out, out=out) is out
    np.testing.assert_array_equal(out.numpy(), silu(x))


def test_text(device):
    x = to_device(np.zeros((3, 2), np.float16), device=0)
    assert repr(x) == "DeviceArray(shape=(3, 2), dtype=float16, device='cuda:0')"
    assert len(x) == 3
    with pytest.raises(TypeError, match="without axes"):
        len(to_device(np.array(1, np.float32)))


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (([1.0],), TypeError, "array must be a numpy.ndarray, got list"),
        ((np.zeros(3, int),), TypeError, "array has dtype int64; the supported dtypes"),
        ((np.zeros(3, ">f4"),), TypeError, "native byte order"),
    ],
)
def test_bad_arrays(device, arguments, error, says):
    with pytest.raises(error, match=says):
        to_device(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"device": 7}, ValueError, "no device cuda:7"),
        ({"device": "gpu"}, ValueError, "must be like 'cuda:0'"),
        ({"device": 1.5}, TypeError, "must be an int or a str"),
        ({"stream": 0}, ValueError, "1 is the default stream"),
        ({"stream": "x"}, TypeError, "stream must be an int"),
    ],
)
def test_bad_options(device, options, error, says):
    with pytest.raises(error, match=f"to_device: .*{says}|{says}"):
        to_device(np.zeros(3, np.float32), **options)


class Stream:
    """A stream as ``cuda.core`` has it."""

    def __init__(self, *answer):
        self.answer = answer

    def __cuda_stream__(self):
        return self.answer


def test_stream_objects_are_kept(runtime, rng):
    host = rng.normal(size=20).astype(np.float32)
    stream = Stream(0, runtime.stream())
    x = to_device(host, stream=stream)
    assert x.__cuda_array_interface__["stream"] == stream.answer[1]
    y = silu(x)
    np.testing.assert_array_equal(y.numpy(), silu(host))
    gone = weakref.ref(stream)
    del stream, x
    assert gone() is not None
    del y
    assert gone() is None
    assert to_device(host, stream=Stream(0, 0)).__cuda_array_interface__["stream"] == 1
    for answer in ((1, 5), (0,), (0, "x")):
        with pytest.raises(TypeError, match="to_device: "):
            to_device(host, stream=Stream(*answer))


def test_streams_of_arrays(runtime, rng):
    """Arrays of several streams meet in a call, which runs on the first one's."""
    first, second = runtime.stream(), runtime.stream()
    x, weight = rng.normal(size=(3, 32)).astype("f4"), rng.normal(size=32).astype("f4")
    on_first = silu(to_device(x, stream=first))
    scale = silu(to_device(weight, stream=second))
    y = rms_norm(on_first, scale)
    assert y.__cuda_array_interface__["stream"] == first
    np.testing.assert_array_equal(y.numpy(), rms_norm(silu(x), silu(weight)))


def test_stream_of_another_library(runtime):
    """cuda.core's streams, and all that have its protocol; the array keeps them alive."""

    class Stream:
        def __init__(self, address):
            self.address = address

        def __cuda_stream__(self):
            return (0, self.address)

    stream = Stream(runtime.stream())
    alive = weakref.ref(stream)
    x = to_device(np.ones(3, np.float32), stream=stream)
    assert x.__cuda_array_interface__["stream"] == stream.address
    del stream
    gc.collect()
    assert alive() is not None
    del x
    gc.collect()
    assert alive() is None
    on_default = to_device(np.ones(3, np.float32), stream=Stream(0))
    assert on_default.__cuda_array_interface__["stream"] == 1


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_dlpack(runtime, rng, name):
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    host = rng.normal(size=(3, 20)).astype(dtype)
    x = silu(to_device(host))
    assert x.__dlpack_device__() == (2, 0)
    stream = runtime.stream()
    seen = from_capsule(runtime, x.__dlpack__(stream=stream, max_version=(1, 0)), Array)
    assert (seen.shape, seen.strides, seen.dtype) == ((3, 20), (20, 1), name)
    assert not runtime.is_idle(stream)
    np.testing.assert_array_equal(seen.numpy(), silu(host))


def test_dlpack_stream_is_waited_for(runtime, rng):
    """The consumer's stream goes on when the array is there, not before."""
    host = rng.normal(size=4000).astype(np.float32)
    stream, pinned = runtime.stream(), runtime.pinned(np.zeros(4000, np.float32))
    x = silu(to_device(host))
    capsule = x.__dlpack__(stream=stream, max_version=(1, 0))
    to, source = map(ctypes.c_void_p, (pinned, from_capsule(runtime, capsule, Array).address))
    runtime.cudaMemcpyAsync(to, source, ctypes.c_size_t(16000), 2, ctypes.c_void_p(stream))
    runtime.synchronize(stream)
    got = np.ctypeslib.as_array((ctypes.c_float * 4000).from_address(pinned))
    np.testing.assert_array_equal(got, silu(host))


def test_dlpack_options(device):
    x = to_device(np.zeros(3, np.float32))
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(1, 1)))
    assert '"dltensor"' in repr(x.__dlpack__(stream=-1))
    for options, error in (
        ({"stream": 0}, ValueError),
        ({"stream": "1"}, TypeError),
        ({"copy": True}, BufferError),
        ({"dl_device": (1, 0)}, BufferError),
    ):
        with pytest.raises(error):
            x.__dlpack__(**options)


def test_cuda_array_interface(runtime, rng):
    host = rng.normal(size=(3, 20)).astype(np.float16)
    x = to_device(host)
    interface = x.__cuda_array_interface__
    assert (interface["shape"], interface["typestr"], interface["version"]) == ((3, 20), "<f2", 3)
    np.testing.assert_array_equal(runtime.read(interface["data"][0], 60, np.float16), host.ravel())
    assert not hasattr(to_device(np.zeros(3, ml_dtypes.bfloat16)), "__cuda_array_interface__")


def test_memory_is_released(runtime):
    def used():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        runtime.cudaDeviceSynchronize()
        runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        return total.value - free.value

    gc.collect()
    before = used()
    x = to_device(np.zeros(100_000, np.float32))
    capsules = [x.__dlpack__(), x.__dlpack__(max_version=(1, 0))]
    y = silu(x)
    assert used() >= before + 800_000
    del x, y
    gc.collect()
    assert used() >= before + 400_000
    capsules.clear()
    gc.collect()
    assert used() == before


def test_is_final(device):
    with pytest.raises(TypeError):
        type("Mine", (tensor_ops_cuda.DeviceArray,), {})


def test_to_device_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(to_device)) is to_device

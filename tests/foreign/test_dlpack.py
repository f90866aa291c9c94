"""Arrays of any library that speaks DLPack: what is asked of them, and what they are told."""

import subprocess
import sys
import types

import numpy as np
import pytest

import tensor_ops
from tensor_ops import BackendError, explain

CUDA, CUDA_HOST, VULKAN, CUDA_MANAGED, UNHEARD_OF = 2, 3, 7, 13, 99


class Producer:
    """The least that DLPack asks for, over a NumPy array's memory."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OldProducer(Producer):
    """A producer of the first DLPack protocol, without `max_version`, `dl_device` and `copy`."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


class Array(Producer):
    """An array of a library that follows the array API standard."""

    def __array_namespace__(self, api_version=None):
        return types.SimpleNamespace(from_dlpack=lambda array: Array(np.from_dlpack(array)))


class OnDevice:
    """An array on a device, whose memory must not be asked for."""

    dtype = np.dtype("float32")

    def __init__(self, kind=CUDA, index=0):
        self.device = (kind, index)

    def __dlpack__(self, **options):
        raise AssertionError("asked for memory on a device")

    def __dlpack_device__(self):
        return self.device


@pytest.fixture
def values():
    return np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)


def test_the_result_is_of_the_callers_library(values):
    result = tensor_ops.silu(Array(values))
    assert type(result) is Array
    np.testing.assert_array_equal(result.array, tensor_ops.silu(values))


def test_neither_argument_nor_result_is_copied(values, seen):
    result = tensor_ops.silu(Array(values))
    assert seen["silu", "x"] == [values.ctypes.data]
    assert seen["silu", "out"] == [result.array.ctypes.data]


@pytest.mark.parametrize("kind", [Array, Producer])
def test_out_is_filled_where_it_is_and_returned(values, kind, seen):
    memory = np.empty_like(values)
    out = kind(memory)
    assert tensor_ops.silu(kind(values), out=out) is out
    assert seen["silu", "out"] == [memory.ctypes.data]
    np.testing.assert_array_equal(memory, tensor_ops.silu(values))


@pytest.mark.parametrize("kind", [Producer, OldProducer])
def test_a_library_that_cannot_take_the_result_needs_out(values, kind):
    """It is told so before anything is computed."""
    x = kind(values)
    with pytest.raises(TypeError, match=r"no from_dlpack\(\).*pass out= or numpy.from_dlpack\(x\)"):
        tensor_ops.silu(x)
    out = np.empty_like(values)
    assert tensor_ops.silu(x, out=out) is out
    np.testing.assert_array_equal(out, tensor_ops.silu(values))


def test_every_argument_may_be_foreign(values):
    weight = np.ones(4, np.float32)
    result = tensor_ops.rms_norm(Array(values), OldProducer(weight), 1e-3)
    np.testing.assert_array_equal(result.array, tensor_ops.rms_norm(values, weight, 1e-3))


def test_explain_needs_no_dtype_attribute_of_host_arrays(values):
    explanation = explain("silu", Producer(values))
    assert (explanation.dtype, explanation.device) == ("float32", "cpu")


def test_a_producer_of_half_the_protocol_is_no_array():
    class Half:
        def __dlpack__(self):
            raise AssertionError

    with pytest.raises(TypeError, match=r"silu: x must be a numpy.ndarray, got .*Half"):
        tensor_ops.silu(Half())


def test_an_unsupported_dtype_is_not_to_be_converted_by_a_method_of_numpy(values):
    for call in (tensor_ops.silu, lambda x: explain("silu", x)):
        with pytest.raises(TypeError, match=r"expected one of float32, .*; convert it first$"):
            call(Array(values.astype(np.int32)))


def test_a_producer_that_fails(values):
    class Failing(Array):
        def __dlpack__(self, **options):
            raise BufferError("the memory is elsewhere")

    with pytest.raises(TypeError, match=r"silu: x .* the memory is elsewhere"):
        tensor_ops.silu(Failing(values))


@pytest.mark.parametrize("answer", [None, 1, (), ("cpu", 0)], ids=repr)
def test_a_device_that_is_none(values, answer):
    class Odd(Array):
        def __dlpack_device__(self):
            return answer

    with pytest.raises(ValueError, match="silu: x is on no device of DLPack"):
        tensor_ops.silu(Odd(values))


def test_read_only_memory_is_read_and_not_written(values):
    values.flags.writeable = False
    x = Array(values)
    np.testing.assert_array_equal(tensor_ops.silu(x).array, tensor_ops.silu(values))
    with pytest.raises(ValueError, match="out is read-only"):
        tensor_ops.silu(x, out=x)


def test_memory_that_may_be_read_only_is_not_written(values):
    """The first DLPack protocol does not say whether it is."""
    with pytest.raises(ValueError, match="out is read-only"):
        tensor_ops.silu(Array(values), out=OldProducer(np.empty_like(values)))


class TestDevices:
    @pytest.mark.parametrize(
        ("kind", "index", "name"),
        [
            (CUDA, 0, "cuda:0"),
            (CUDA, 3, "cuda:3"),
            (CUDA_MANAGED, 0, "cuda:0"),
            (VULKAN, 1, "vulkan:1"),
            (UNHEARD_OF, 0, "dlpack99:0"),
        ],
    )
    def test_no_backend_of_the_device_is_an_error_that_says_why(self, kind, index, name):
        with pytest.raises(BackendError, match=f"silu: no backend can run float32 on {name}.*CPU"):
            tensor_ops.silu(OnDevice(kind, index))

    def test_explain(self):
        explanation = explain("silu", OnDevice())
        assert (explanation.dtype, explanation.device) == ("float32", "cuda:0")
        assert explanation.backend is None
        assert explanation.steps[-1].reason == "it runs on the CPU, not on cuda:0"

    def test_two_devices_are_an_error(self, values):
        with pytest.raises(ValueError, match="rms_norm: weight is on cuda:0, expected every array"):
            tensor_ops.rms_norm(Array(values), OnDevice())
        with pytest.raises(ValueError, match="silu: out is on cuda:0, expected every array"):
            tensor_ops.silu(Array(values), out=OnDevice())

    def test_pinned_host_memory_is_host_memory(self, values):
        class Pinned(Array):
            def __dlpack_device__(self):
                return (CUDA_HOST, 0)

        assert explain("silu", Pinned(values)).device == "cpu"
        result = tensor_ops.silu(Pinned(values))
        np.testing.assert_array_equal(result.array, tensor_ops.silu(values))


def test_no_array_library_is_imported():
    code = """
import sys, numpy, tensor_ops
class Array:
    def __init__(self, array): self.array = array
    def __dlpack__(self, **options): return self.array.__dlpack__(**options)
    def __dlpack_device__(self): return (1, 0)
tensor_ops.silu(Array(numpy.ones(3)), out=numpy.ones(3))
tensor_ops.list_backends()
print(*sorted({"torch", "cupy", "jax", "tensorflow", "onnxruntime"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == ""

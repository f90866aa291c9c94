"""That the emulated runtime finds the mistakes that it is there for."""

import ctypes

import numpy as np
import pytest
from emulated import CudaError

SIZE = 64 * 4


def pointer(value):
    return ctypes.c_void_p(value)


@pytest.fixture
def memory(runtime):
    return runtime.memory(np.zeros(64, np.float32))


def copy(runtime, to, source, stream, size=SIZE, kind=3):
    runtime.cudaMemcpyAsync(
        pointer(to), pointer(source), ctypes.c_size_t(size), kind, pointer(stream)
    )


def test_new_memory_is_nan(runtime):
    address = ctypes.c_void_p()
    runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(SIZE))
    assert np.isnan(runtime.read(address.value, 64, np.float32)).all()


def test_nothing_runs_until_somebody_waits(runtime, memory):
    stream, source = runtime.stream(), runtime.pinned(np.ones(64, np.float32))
    runtime.upload_later(memory, source, SIZE, stream)
    assert not runtime.is_idle(stream)
    runtime.synchronize(stream)
    assert runtime.is_idle(stream)
    assert (runtime.read(memory, 64, np.float32) == 1).all()


def test_a_missing_wait_shows(runtime, memory):
    """Each of two streams that race wins now and then."""
    first, second = runtime.stream(), runtime.stream()
    winners = set()
    for _ in range(50):
        for value, stream in ((1, first), (2, second)):
            source = runtime.pinned(np.full(64, value, np.float32))
            runtime.upload_later(memory, source, SIZE, stream)
        winners.add(runtime.read(memory, 1, np.float32)[0])
    assert winners == {1, 2}


def test_an_event_orders_streams(runtime, memory):
    first, second, event = runtime.stream(), runtime.stream(), ctypes.c_void_p()
    runtime.cudaEventCreateWithFlags(ctypes.byref(event), 2)
    one, two = (runtime.pinned(np.full(64, value, np.float32)) for value in (1, 2))
    for _ in range(50):
        runtime.upload_later(memory, one, SIZE, first)
        runtime.cudaEventRecord(event, pointer(first))
        runtime.cudaStreamWaitEvent(pointer(second), event, 0)
        runtime.upload_later(memory, two, SIZE, second)
        assert runtime.read(memory, 1, np.float32)[0] == 2


def test_copies_out_of_bounds(runtime, memory):
    stream, source = runtime.stream(), runtime.pinned(np.ones(128, np.float32))
    with pytest.raises(CudaError, match="cudaErrorInvalidValue"):
        runtime.upload_later(memory, source, SIZE + 1, stream)
    with pytest.raises(CudaError, match="cudaErrorInvalidValue"):
        runtime.upload_later(source, memory, SIZE, stream)


def test_use_after_release(runtime, python):
    code = (
        "import numpy as np, ctypes\n"
        f"import sys; sys.path.append({str(__file__).rpartition('/')[0]!r})\n"
        "from emulated import Runtime, CudaError\n"
        "r = Runtime(); s = r.stream(); p = ctypes.c_void_p\n"
        "m, o = ctypes.c_void_p(), r.memory(np.zeros(64, np.float32))\n"
        "r.cudaMallocAsync(ctypes.byref(m), ctypes.c_size_t(256), p(s))\n"
        "r.cudaFreeAsync(m, p(s))\n"
        "r.cudaMemcpyAsync(p(o), m, ctypes.c_size_t(256), 3, p(s))\n"
        "try: r.synchronize(s)\n"
        "except CudaError as error: print(error)\n"
        "try: r.stream()\n"
        "except CudaError as error: print(error)\n"
    )
    assert python(code).split() == ["cudaErrorIllegalAddress"] * 2


def test_unknown_handles(runtime, memory):
    for call in (
        lambda: runtime.synchronize(12345),
        lambda: copy(runtime, memory, memory, 12345),
        lambda: runtime.cudaEventSynchronize(pointer(12345)),
        lambda: runtime.cudaStreamDestroy(pointer(12345)),
    ):
        with pytest.raises(CudaError, match="cudaErrorInvalidResourceHandle"):
            call()


def test_a_capture_may_not_wait(runtime):
    stream, graph = runtime.stream(), ctypes.c_void_p()
    runtime.cudaStreamBeginCapture(pointer(stream), 0)
    with pytest.raises(CudaError, match="cudaErrorStreamCaptureUnsupported"):
        runtime.synchronize(stream)
    with pytest.raises(CudaError, match="cudaErrorStreamCaptureInvalidated"):
        runtime.cudaStreamEndCapture(pointer(stream), ctypes.byref(graph))


@pytest.mark.parametrize(("capability", "kib"), [("8.6", 99), ("9.0", 227)])
def test_shared_memory_is_that_of_the_device(capability, kib, python):
    code = "import tensor_ops_cuda; print(tensor_ops_cuda.devices()[0].max_shared_memory)"
    found = python(code, TENSOR_OPS_EMULATED_CAPABILITY=capability)
    assert int(found) == kib * 1024

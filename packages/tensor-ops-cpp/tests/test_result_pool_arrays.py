"""Large results are arrays like any other, and their memory is theirs as long as it is used."""

import ctypes
import gc
import pickle
import sys
import tracemalloc
import warnings

import numpy as np
import pytest
from pooled import MIB, X, address, change, handler_of, result

import tensor_ops_cpp as t

pytestmark = pytest.mark.usefixtures("empty_pool")


def test_results_own_their_memory():
    y = result()
    assert y.base is None
    assert y.flags.owndata
    assert y.flags.carray
    assert sys.getsizeof(y) > y.nbytes
    assert pickle.loads(pickle.dumps(y)).tobytes() == y.tobytes()


@pytest.mark.parametrize("mebibytes", [0.001, 0.6, 1.01, 3, 20])
def test_resize_keeps_the_contents(mebibytes):
    y = result(1, value=5.0)
    value = y[0]
    count = int(mebibytes * MIB) // 8
    y.resize(count, refcheck=False)
    kept = min(count, MIB // 8)
    assert np.all(y[:kept] == value)
    assert np.all(y[kept:] == 0)
    assert y.flags.owndata
    del y
    assert t.pool_info()["used_blocks"] == 0


def test_setstate_swaps_the_memory():
    y = result()
    before = t.pool_info()
    y.__setstate__(np.arange(3.0).__reduce__()[2])
    assert y.tolist() == [0, 1, 2]
    assert change(before)["used_blocks"] == -1


def test_an_array_that_looks_smaller_frees_all():
    y = result()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of NumPy 2.5
        y.shape = (2, -1)
        y.dtype = np.uint8
    held = t.pool_info()["used_bytes"]
    del y
    assert t.pool_info()["held_bytes"] == held


def test_another_allocator_of_numpys_serves_results_too():
    """Whoever gives NumPy one (NEP 49): here its own, in a capsule that is not its own."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    table = api.PyCapsule_GetPointer(np._core._multiarray_umath._ARRAY_API, None)
    functions = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(functions[304])
    default = ctypes.cast(functions[306], ctypes.POINTER(ctypes.py_object)).contents.value
    name = b"mem_handler"
    other = api.PyCapsule_New(api.PyCapsule_GetPointer(default, name), name, None)
    set_handler(other)
    try:
        y = result()
    finally:
        set_handler(default)
    assert handler_of(y) == "default_allocator"
    assert handler_of(result()) == "tensor_ops_cpp"


def test_tracemalloc_sees_results():
    tracemalloc.start()
    try:
        in_numpys_domain = [tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)]

        def traced():
            taken = tracemalloc.take_snapshot().filter_traces(in_numpys_domain)
            return sum(trace.size for trace in taken.traces)

        before = traced()
        y = result(4)
        assert traced() - before >= y.nbytes
        del y
        assert traced() - before < MIB
        assert t.pool_info()["held_bytes"] >= 4 * MIB  # what is kept is nobody's
    finally:
        tracemalloc.stop()


def overwrite(mebibytes=1):
    """Results that take whatever memory of that size is free."""
    return [result(mebibytes, value=7.0) for _ in range(4)]


class Sub(np.ndarray):
    pass


@pytest.mark.parametrize(
    "use",
    [
        lambda y: y[10:20],
        lambda y: y[::-2],
        lambda y: y.reshape(4, -1).T,
        lambda y: y.view(np.uint8),
        lambda y: y.view(Sub),
        lambda y: y.view(Sub)[5:],
        lambda y: np.broadcast_to(y, (3, y.size)),
        lambda y: np.lib.stride_tricks.sliding_window_view(y, 3),
        lambda y: y.flat,
        memoryview,
        lambda y: memoryview(y)[100:200],
        lambda y: np.frombuffer(y, np.uint8),
        np.from_dlpack,
        lambda y: y.__dlpack__(),
        lambda y: y.__array_interface__ and np.asarray(Interface(y)),
        lambda y: y.ctypes,
        np.nditer,
        lambda y: [y],
    ],
)
@pytest.mark.sampled(3, "use")
def test_memory_in_use(use):
    y = result()
    place = address(y)
    user = use(y)
    del y
    gc.collect()
    others = overwrite()
    assert place not in [address(other) for other in others]
    del others, user
    gc.collect()
    assert place in [address(other) for other in overwrite()]


class Interface:
    """Keeps an array behind `__array_interface__`."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


def test_views_keep_their_values():
    y = t.silu(X)
    expected = y[1000:2000].tobytes()
    view, memory = y[1000:2000], memoryview(y)[1000:2000]
    exported = np.from_dlpack(y)[1000:2000]
    del y
    overwrite()
    assert view.tobytes() == memory.tobytes() == exported.tobytes() == expected


def test_torch_tensors_keep_their_values():
    torch = pytest.importorskip("torch")
    y = t.silu(X)
    expected = y.tobytes()
    tensor = torch.from_numpy(y)
    shared = torch.from_dlpack(y)
    del y
    overwrite()
    assert tensor.numpy().tobytes() == shared.numpy().tobytes() == expected


def test_results_as_inputs_are_not_overwritten():
    y = t.silu(X)
    for _ in range(5):
        y = t.silu(y)
    expected = X
    for _ in range(6):
        expected = t.silu(expected, out=np.empty_like(X))
    assert y.tobytes() == expected.tobytes()


def test_elision_of_numpy_works_on_results():
    """NumPy computes in the memory of a temporary, when the temporary owns it."""
    x = np.linspace(-3, 3, MIB // 8)
    kept = t.silu(x)
    y = t.silu(x) * 2.0 + 1.0
    assert np.array_equal(y, kept * 2.0 + 1.0)

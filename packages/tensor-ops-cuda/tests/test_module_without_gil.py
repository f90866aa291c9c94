"""Nothing relies on the GIL: these run with it as well, and say more in a free-threaded Python."""

import itertools
import sys
import sysconfig
import threading

import numpy as np
import pytest
from emulated import ExchangeLibrary, InterfaceArray, new_library

import tensor_ops_cuda as t
from tensor_ops_cuda import _native

THREADS = 8
SHAPES = [(1, 8), (5, 64), (3, 2, 130), (64, 96)]
EXPORTERS = ["host", "own", "own on a stream", "exchange", "protocol", "interface"]
DTYPES = ["float32", "float16", "bfloat16", "float64"]


@pytest.fixture(autouse=True)
def short_turns():
    """With a GIL, threads take turns within calls."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def settings():
    """Restores the settings that the tests below change."""
    chunk, limit = _native.chunk_bytes(), t.pool_info()["limit"]
    yield
    _native.set_chunk_bytes(chunk)
    t.set_pool_limit(limit)


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python is not free-threaded"
)
def test_import_leaves_the_gil_off(monkeypatch, python):
    monkeypatch.delenv("PYTHON_GIL", raising=False)  # which would keep it off
    assert python("import sys, tensor_ops_cuda; print(sys._is_gil_enabled())") == "False\n"


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("name", DTYPES)
def test_callers_of_every_kind_beside_changes_of_settings(runtime, monkeypatch, rng, name):
    place = exporters(runtime, monkeypatch)
    given = [draw(rng, shape, name) for shape in SHAPES]
    weights = [draw(rng, shape[-1:], name) for shape in SHAPES]
    expected = [t.silu(t.rms_norm(x, w)) for x, w in zip(given, weights, strict=True)]
    wrong = []

    def call(k):
        kinds = itertools.islice(itertools.cycle(EXPORTERS), k, k + 10 * len(EXPORTERS))
        for step, kind in enumerate(kinds):
            which = (k + step) % len(SHAPES)
            make, fetch = place[kind]
            y = t.silu(t.rms_norm(make(given[which]), make(weights[which])))
            if not same_bits(fetch(y), expected[which]):
                wrong.append((kind, SHAPES[which]))

    run_at_once([lambda k=k: call(k) for k in range(THREADS)], beside=change_settings)
    assert wrong == []


def exporters(runtime, monkeypatch):
    """How an array becomes one of each kind, and how its elements are fetched."""
    interface, of_its_own = runtime.stream(), runtime.stream()
    exchange = ExchangeLibrary(runtime, runtime.stream())
    protocol = new_library(runtime, "madeup")
    monkeypatch.setitem(sys.modules, "madeup", protocol)

    def as_interface(host):
        # It has no bfloat16.
        if host.dtype.name == "bfloat16":
            return t.to_device(host)
        return InterfaceArray.of(runtime, host, stream=interface)

    def fetch(array):
        return array.numpy()

    return {
        "host": (np.copy, np.asarray),
        "own": (t.to_device, fetch),
        "own on a stream": (lambda host: t.to_device(host, stream=of_its_own), fetch),
        "exchange": (lambda host: exchange.Tensor.of(runtime, host), fetch),
        "protocol": (lambda host: protocol.ndarray.of(runtime, host), fetch),
        "interface": (as_interface, fetch),
    }


def change_settings(step):
    _native.set_chunk_bytes([1000, 16 << 20][step % 2])
    t.set_pool_limit([0, 1 << 20][step % 2])
    t.trim_pool()
    assert t.pool_info()["used_bytes"] >= 0
    assert t.probe()["available"]
    assert t.info()["device_count"] >= 1
    assert str(t.get_cuda_info())


@pytest.mark.usefixtures("device")
def test_one_array_of_many_callers():
    """Its memory, and the stream that it is on, go when the last of them is done."""
    host = np.linspace(-4, 4, 300, dtype=np.float32).reshape(3, 100)
    expected = t.silu(host)
    for _ in range(20):
        shared = [t.to_device(host)]
        results = [None] * THREADS

        def call(k, shared=shared, results=results):
            x = shared[0]
            capsule = x.__dlpack__(max_version=(1, 0))
            results[k] = t.silu(x)
            assert x.__cuda_array_interface__["shape"] == (3, 100)
            del capsule, x

        run_at_once([lambda k=k, call=call: call(k) for k in range(THREADS)])
        shared.clear()
        assert all(same_bits(each.numpy(), expected) for each in results)


FIRST_SEEN_BY_MANY = """
import sys, threading
import numpy as np, tensor_ops_cuda as t

sys.setswitchinterval(1e-5)
kinds = [type(f"Kind{i}", (np.ndarray,), {}) for i in range(300)]  # more than are remembered
arrays = [np.full(8, i / 100, np.float32).view(kind) for i, kind in enumerate(kinds)]
expected = [t.silu(x.view(np.ndarray)) for x in arrays]
start, wrong = threading.Barrier(8), []

def call(k):
    start.wait()
    for again in range(2):
        for i, x in enumerate(arrays):
            if (np.asarray(t.silu(x)) != expected[i]).any(): wrong.append(i)
            try: t.silu(kinds[i])
            except TypeError as error: assert "must be a numpy.ndarray" in str(error)
            else: wrong.append(i)

threads = [threading.Thread(target=call, args=[k]) for k in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong, wrong
if sys.version_info < (3, 13) or sys._is_gil_enabled():  # else types do not count
    counts = [sys.getrefcount(kind) for kind in kinds]
    assert set(counts[:100]) == {counts[-1] + 1}, counts
"""


@pytest.mark.usefixtures("device")
def test_types_that_many_threads_see_first(python):
    """In a process of its own, whose table of types it fills."""
    assert python(FIRST_SEEN_BY_MANY) == ""


@pytest.mark.usefixtures("device")
def test_device_is_chosen_while_the_environment_changes(monkeypatch):
    monkeypatch.setenv("TENSOR_OPS_CUDA_DEVICE", "0")
    x = np.linspace(-3, 3, 30, dtype=np.float32)
    expected = t.silu(x)
    wrong = []

    def call():
        wrong.extend(k for k in range(100) if not same_bits(t.silu(x), expected))

    def change(step):
        monkeypatch.setenv(f"TENSOR_OPS_CUDA_TEST_{step % 100}", str(step))

    run_at_once([call] * THREADS, beside=change)
    assert wrong == []


@pytest.mark.usefixtures("device")
def test_errors_of_threads_are_their_own():
    """A message is made of the arguments of its own call."""
    found = {}

    def call(length):
        for place in (np.asarray, t.to_device) * 30:
            x, weight = np.ones((2, length), np.float32), np.ones(length + 1, np.float32)
            with pytest.raises(ValueError, match="shape") as caught:
                t.rms_norm(place(x), place(weight))
            found.setdefault(length, set()).add(str(caught.value))

    run_at_once([lambda length=length: call(length) for length in range(3, 9)])
    assert {length: len(messages) for length, messages in found.items()} == dict.fromkeys(
        range(3, 9), 1
    )


def run_at_once(calls, beside=None):
    """Run every call in a thread, and `beside` in one more, with 0, 1, ... until they are done."""
    start = threading.Barrier(len(calls) + 1)
    done = threading.Event()
    failed = []

    def guarded(work):
        try:
            start.wait()
            work()
        except BaseException as error:
            failed.append(error)

    def keep_working():
        for step in itertools.count():
            if done.is_set():
                return
            if beside is not None:
                beside(step)
            else:
                done.wait()

    threads = [threading.Thread(target=guarded, args=[call]) for call in calls]
    other = threading.Thread(target=guarded, args=[keep_working])
    for thread in (*threads, other):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    other.join()
    if failed:
        raise failed[0]


def draw(rng, shape, name):
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if name == "bfloat16" else name
    return rng.normal(size=shape).astype(dtype)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()

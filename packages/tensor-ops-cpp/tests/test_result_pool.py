"""Memory of large results: kept when freed, used again, and never while anybody uses it."""

import ctypes
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tensor_ops_cpp as t

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this system")

LEAST = 128 * 1024  # README.md, "Memory"
MIB = 2**20
X = np.linspace(-3, 3, MIB // 4, dtype=np.float32)


@pytest.fixture(autouse=True)
def empty_pool():
    """An empty pool of 64 MiB, whatever the tests before left."""
    before = t.pool_info()["limit"]
    t.set_pool_limit(64 * MIB)
    t.trim_pool()
    yield
    t.set_pool_limit(before)


def address(array):
    return array.ctypes.data


def result(mebibytes=1, value=0.0):
    """A result of about so many bytes, and something to tell it by."""
    return t.silu(np.full(int(mebibytes * MIB) // 8, value))


def handler_of(array):
    return np._core.multiarray.get_handler_name(array)


def change(before):
    """What has changed in pool_info() since."""
    return {key: value - before[key] for key, value in t.pool_info().items()}


def run_in_new_process(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


# What is kept, and what for


def test_freed_memory_is_used_again():
    before = t.pool_info()
    first = result()
    place = address(first)
    del first
    second = result()
    assert address(second) == place
    assert {k: change(before)[k] for k in ("hits", "misses")} == {"hits": 1, "misses": 1}


def test_what_was_freed_last_is_used_first():
    arrays = [result() for _ in range(3)]
    places = [address(a) for a in arrays]
    while arrays:
        del arrays[0]
    assert [address(result()) for _ in range(2)] == [places[2]] * 2


def test_nearly_equal_sizes_share_blocks():
    place = address(result(1.0))
    assert address(result(0.95)) == place
    assert address(result(1.0)) == place
    assert address(result(0.5)) != place


@pytest.mark.parametrize("elements", [LEAST // 8, 20_000, 99_999, 2**18 - 1, 2**18, 2**18 + 1])
def test_blocks_are_little_larger_than_asked_for(elements):
    before = t.pool_info()
    y = t.silu(np.zeros(elements))
    assert change(before)["used_bytes"] <= y.nbytes * 1.125 + 2 * 64 * 1024


def test_small_results_are_numpys():
    before = t.pool_info()
    y = t.silu(np.zeros(LEAST // 8 - 1))
    assert handler_of(y) == "default_allocator"
    assert change(before) == dict.fromkeys(before, 0)
    assert handler_of(t.silu(np.zeros(LEAST // 8))) == "tensor_ops_cpp"


def test_zero_size():
    x = np.zeros((0, 2**20), np.float32)
    assert t.silu(x).shape == x.shape
    assert handler_of(t.silu(x)) == "default_allocator"


def test_both_results_of_add_rms_norm():
    x, weight = X.reshape(64, -1), np.ones(X.size // 64, np.float32)
    expected = t.add_rms_norm(x, x, weight, out=(np.empty_like(x), np.empty_like(x)))
    y, h = t.add_rms_norm(x, x, weight)
    places = {address(y), address(h)}
    assert len(places) == 2
    assert not np.shares_memory(y, h)
    del y, h
    y, h = t.add_rms_norm(x, x, weight)
    assert {address(y), address(h)} == places
    assert y.tobytes() == expected[0].tobytes()
    assert h.tobytes() == expected[1].tobytes()


def test_out_is_left_alone():
    before = t.pool_info()
    t.silu(X, out=np.empty_like(X))
    assert change(before) == dict.fromkeys(before, 0)


@pytest.mark.parametrize("mebibytes", [0.125, 1, 2, 3, 16, 33])
def test_results_are_aligned(mebibytes):
    assert address(result(mebibytes)) % 64 == 0


def test_used_again_results_are_right(dtype, rng):
    x = rng.normal(size=(64, 4096)).astype(dtype)
    expected = t.silu(x, out=np.empty_like(x)).tobytes()
    for _ in range(3):
        assert t.silu(x).tobytes() == expected
        result(x.nbytes / MIB, value=np.nan)  # dirties what comes next


# The limit


def test_limit_is_kept():
    t.set_pool_limit(10 * MIB)
    arrays = [result(1 + i / 7) for i in range(20)]
    while arrays:
        arrays.pop()
        assert t.pool_info()["held_bytes"] <= 10 * MIB
    assert t.pool_info()["held_bytes"] > 7 * MIB


def test_least_recently_used_goes_first():
    """Sizes of 1, 1.5 and 1.25 MiB, of which only two fit."""
    t.set_pool_limit(int(3.5 * MIB))
    first, second = result(1), result(1.5)
    del first
    del second
    result(1)  # the first has been used since
    result(1.25)
    before = t.pool_info()
    assert before["held_blocks"] == 2
    kept = [result(1), result(1.25)]
    assert change(before)["hits"] == 2
    result(1.5)
    assert change(before)["misses"] == 1
    del kept


def test_what_is_larger_than_the_limit_is_not_kept():
    t.set_pool_limit(4 * MIB)
    small = result(1)
    del small
    large = result(8)
    assert handler_of(large) == "default_allocator"
    del large
    assert t.pool_info()["held_blocks"] == 1


def test_a_lower_limit_holds_at_once():
    arrays = [result() for _ in range(4)]
    del arrays
    assert t.pool_info()["held_blocks"] == 4
    t.set_pool_limit(5 * MIB // 2)
    assert t.pool_info()["held_blocks"] == 2
    assert t.pool_info()["limit"] == 5 * MIB // 2


def test_limit_zero_turns_the_pool_off():
    alive = result()
    t.set_pool_limit(0)
    assert handler_of(result()) == "default_allocator"
    assert np.all(alive == 0)
    del alive
    assert t.pool_info()["held_bytes"] == t.pool_info()["limit"] == 0


@pytest.mark.parametrize("wrong", [True, 1.0, "1", None, np.float64(2)])
def test_limit_of_a_wrong_type(wrong):
    with pytest.raises(TypeError, match=r"set_pool_limit: bytes must be an int, got \w+"):
        t.set_pool_limit(wrong)


def test_negative_limit():
    with pytest.raises(ValueError, match="set_pool_limit: bytes must be at least 0, got -1"):
        t.set_pool_limit(-1)


@pytest.mark.parametrize("huge", [2**63 - 1, 2**64, 10**30])
def test_huge_limit(huge):
    t.set_pool_limit(huge)
    assert t.pool_info()["limit"] == 2**63 - 1
    result()
    assert t.pool_info()["held_blocks"] == 1


def test_limit_of_a_numpy_integer():
    t.set_pool_limit(np.int32(5 * MIB))
    assert t.pool_info()["limit"] == 5 * MIB


def test_trim_says_how_much():
    arrays = [result(), result(2)]
    arrays.clear()
    held = t.pool_info()["held_bytes"]
    assert held >= 3 * MIB
    assert t.trim_pool() == held
    assert t.trim_pool() == 0
    assert t.pool_info()["held_blocks"] == 0


def test_info_prints_a_line_per_key():
    info = t.pool_info()
    assert isinstance(info, dict)
    assert len(str(info).splitlines()) == len(info)
    assert f"limit        {64 * MIB}" in str(info)


LIMIT = "import tensor_ops_cpp as t; print(t.pool_info()['limit'])"


@pytest.mark.parametrize(
    ("setting", "limit"),
    [
        ("0", 0),
        ("1000000", 1000000),
        ("64K", 64 * 2**10),
        ("512M", 512 * MIB),
        ("512MiB", 512 * MIB),
        ("2G", 2**31),
        ("1TiB", 2**40),
        ("99999999999999999999", 2**63 - 1),
        ("9999999999T", 2**63 - 1),
    ],
)
def test_limit_of_the_environment(setting, limit):
    done = run_in_new_process(LIMIT, TENSOR_OPS_CPP_POOL_LIMIT=setting)
    assert int(done.stdout) == limit
    assert done.stderr == ""


def test_default_limit_is_a_fraction_of_the_memory():
    done = run_in_new_process(LIMIT, TENSOR_OPS_CPP_POOL_LIMIT="")
    assert int(done.stdout) == min(t.info()["max_memory"] // 16, 4 * 2**30)
    assert done.stderr == ""


@pytest.mark.parametrize("setting", ["much", "-1", "1.5G", "5MB", "10 M", "0x10", "5k", "12Q", " "])
def test_wrong_limit_of_the_environment_warns(setting):
    done = run_in_new_process(LIMIT, TENSOR_OPS_CPP_POOL_LIMIT=setting)
    default = min(t.info()["max_memory"] // 16, 4 * 2**30)
    assert int(done.stdout) == default
    assert f"RuntimeWarning: TENSOR_OPS_CPP_POOL_LIMIT is '{setting}', which is not" in done.stderr
    assert done.stderr.count("Warning") == 1
    assert str(default) in done.stderr


# Results are arrays like any other


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


# Memory that anybody uses is not handed out


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


# Threads and processes


def test_eight_threads(rng):
    sizes = [LEAST // 4 + int(n) for n in rng.integers(0, 2**17, 40)]
    inputs = [np.full(n, i / 10, np.float32) for i, n in enumerate(sizes)]
    expected = [t.silu(x[:1].copy())[0] for x in inputs]
    stop = time.monotonic() + 3

    def hammer(seed):
        order = np.random.default_rng(seed)
        alive = []
        while time.monotonic() < stop:
            i = int(order.integers(len(inputs)))
            alive.append((i, t.silu(inputs[i], num_threads=1)))
            if len(alive) > 6:
                k, y = alive.pop(int(order.integers(len(alive))))
                if not np.all(y == expected[k]):
                    return False
            if order.integers(200) == 0:
                t.trim_pool()
            if order.integers(200) == 0:
                t.set_pool_limit(int(order.integers(1, 32)) * MIB)
        return all(np.all(y == expected[k]) for k, y in alive)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(hammer, range(8)))
    gc.collect()
    info = t.pool_info()
    assert info["used_blocks"] == info["used_bytes"] == 0
    assert info["held_bytes"] <= info["limit"]


def test_freed_by_another_thread():
    box = [result()]
    place = address(box[0])
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert address(result()) == place


def status_of(child):
    """Exit status of a forked child that runs a function; 1 where it is not true."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if child() else 1
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    pytest.fail("the child hangs")


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child():
    expected = t.silu(X, out=np.empty_like(X)).tobytes()
    alive = t.silu(X)
    t.silu(X)

    def child():
        starts_empty = t.pool_info()["held_blocks"] == 0
        right = alive.tobytes() == expected and t.silu(X).tobytes() == expected
        again = t.silu(X)
        place = address(again)
        del again
        return starts_empty and right and address(t.silu(X)) == place

    assert status_of(child) == 0
    assert t.pool_info()["held_blocks"] == 1
    assert alive.tobytes() == t.silu(X).tobytes() == expected


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork_while_other_threads_allocate():
    expected = t.silu(X).tobytes()
    stop = threading.Event()

    def keep_working():
        while not stop.is_set():
            t.silu(X, num_threads=1)
            t.trim_pool()

    workers = [threading.Thread(target=keep_working) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        children = [status_of(lambda: t.silu(X).tobytes() == expected) for _ in range(20)]
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert children == [0] * 20


@pytest.mark.unsanitized(reason="AddressSanitizer does not survive a limit of memory")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
def test_no_memory():
    """The pool gives way before there is a MemoryError, and works on after one."""
    # Of one arena: glibc may answer a malloc() that fails by reserving 64 MiB for another.
    run_in_new_process(
        """
import resource
import numpy as np, tensor_ops_cpp as t

MIB = 2**20
t.set_pool_limit(1024 * MIB)
large = np.broadcast_to(np.float32(1), (100 * MIB // 4,))  # no memory of its own
larger = np.broadcast_to(np.float32(1), (200 * MIB // 4,))
t.silu(np.ones(MIB, np.float32))
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 280 * MIB
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
t.silu(large)
assert t.pool_info()["held_bytes"] >= 100 * MIB
y = t.silu(larger)  # only fits when what is kept goes
assert y[0] == y[-1] == t.silu(np.ones(1, np.float32))[0]
try:
    t.silu(larger)
except MemoryError as error:
    assert "200. MiB" in str(error), error
else:
    raise AssertionError("no MemoryError")
del y
y = t.silu(larger)
assert y[0] == y[-1]
del y
t.set_pool_limit(250 * MIB)
assert t.pool_info()["held_bytes"] >= 200 * MIB
y = t.silu(np.broadcast_to(np.float32(1), (260 * MIB // 4,)))  # NumPy's, and needs the same memory
assert t.pool_info()["held_bytes"] == 0
""",
        MALLOC_ARENA_MAX="1",
    )


@pytest.mark.parametrize("keeper", ["atexit", "module", "cycle", "builtins"])
def test_results_outlive_everything(keeper):
    done = run_in_new_process(f"""
import atexit, builtins, gc, sys
import numpy as np, tensor_ops_cpp as t

results = [t.silu(np.ones(2**18)) for _ in range(3)]
kind = {keeper!r}
if kind == "atexit":
    atexit.register(lambda results=results: print(sum(y.sum() for y in results) > 0))
elif kind == "module":
    sys.kept_by_the_last_module = results[0][5:], memoryview(results[1])
elif kind == "cycle":
    gc.disable()
    cycle = [results]
    cycle.append(cycle)
else:
    builtins.kept = results
for name in [name for name in sys.modules if name.startswith("tensor_ops_cpp")]:
    del sys.modules[name]
del t
gc.collect()
assert results[0][0] == results[2][-1] > 0
del results[2]
print("alive")
""")
    assert done.stdout.split() == ["alive", "True"] if keeper == "atexit" else ["alive"]
    assert done.stderr == ""


def test_import_touches_no_memory():
    run_in_new_process("""
import tensor_ops_cpp as t
info = t.pool_info()
assert info.pop("limit") > 0
assert not any(info.values())
""")

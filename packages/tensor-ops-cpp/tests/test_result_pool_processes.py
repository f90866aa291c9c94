"""Memory of large results among threads and processes, and where there is none."""

import gc
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pooled import LEAST, MIB, X, address, result, run_in_new_process

import tensor_ops_cpp as t

pytestmark = pytest.mark.usefixtures("empty_pool")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this system")


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
    # One arena only: glibc may answer a malloc() that fails by reserving 64 MiB for another.
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

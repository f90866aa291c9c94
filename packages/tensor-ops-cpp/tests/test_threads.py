"""Threads: how many, several callers at once, the GIL, and fork."""

import ctypes
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cpp_cases import OP_VARIANTS, OPS, arguments, same_bits

import tensor_ops_cpp as t

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this system")
needs_affinity = pytest.mark.skipif(
    not os.path.isdir("/proc/self/task") or not hasattr(os, "sched_setaffinity"),
    reason="no affinity of threads here",
)
DEADLINE = 60


def threads_in_new_process(**environment):
    done = subprocess.run(
        [sys.executable, "-c", "import tensor_ops_cpp as t; print(t.get_num_threads())"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def test_default_is_at_most_the_affinity():
    assert 1 <= threads_in_new_process(OMP_NUM_THREADS="") <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize("setting", ["1", " 1", "1,4"])
def test_omp_num_threads_lowers_the_default(setting):
    assert threads_in_new_process(OMP_NUM_THREADS=setting) == 1


@pytest.mark.parametrize("setting", ["0", "-3", "many", "10000", "2x"])
def test_omp_num_threads_does_nothing_else(setting):
    assert threads_in_new_process(OMP_NUM_THREADS=setting) == threads_in_new_process(
        OMP_NUM_THREADS=""
    )


def test_affinity_lowers_the_default():
    code = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "import tensor_ops_cpp as t; print(t.get_num_threads(), t.info()['compute_units'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]


def test_import_starts_no_thread():
    code = "import numpy, os; n = len(os.listdir('/proc/self/task')); import tensor_ops_cpp as t\n"
    code += "t.get_optimization_info(); assert len(os.listdir('/proc/self/task')) == n"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_set_num_threads(threads):
    t.set_num_threads(3)
    assert t.get_num_threads() == 3
    assert t.get_optimization_info()["num_threads"] == 3


@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_eight_callers_at_once(op, kwargs, rng):
    given = [arguments(op, (64, 1024), np.float32, rng) for _ in range(8)]
    expected = [OPS[op](*g, **kwargs, num_threads=1) for g in given]

    def call(k):
        return all(
            same_bits(OPS[op](*given[k], **kwargs, num_threads=2), expected[k]) for _ in range(5)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(8)))


def test_gil_is_released():
    x = np.ones((64, 2**18), np.float64)
    out = np.empty_like(x)
    calls = threading.Event()
    ticks = []

    def tick():
        while not calls.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        start = time.perf_counter()
        t.gelu(x, "none", out=out, num_threads=1)
        end = time.perf_counter()
    finally:
        calls.set()
        ticker.join()
    assert end - start > 0.01
    assert sum(start < tick < end for tick in ticks) >= 3


X = np.linspace(-3, 3, 2**18, dtype=np.float32)


def work_in_parallel():
    """Uses two threads; the bytes of the result."""
    return t.silu(X, num_threads=2).tobytes()


def wait_for_child(pid):
    """The child's exit status; fails where it hangs."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    pytest.fail("the child hangs")


def fork_and_work(expected, depth=1):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if work_in_parallel() == expected and (
                depth == 1 or fork_and_work(expected, depth - 1) == 0
            ):
                status = 0
        finally:
            os._exit(status)
    return wait_for_child(pid)


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork_after_use():
    expected = work_in_parallel()
    assert fork_and_work(expected, depth=2) == 0
    assert work_in_parallel() == expected


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork_from_another_thread():
    expected = work_in_parallel()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work_in_parallel).result() == expected
        assert pool.submit(fork_and_work, expected).result() == 0
        assert pool.submit(work_in_parallel).result() == expected
    assert work_in_parallel() == expected


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork_while_another_thread_computes():
    expected = work_in_parallel()
    stop = threading.Event()

    def keep_working():
        while not stop.is_set():
            work_in_parallel()

    worker = threading.Thread(target=keep_working)
    worker.start()
    try:
        assert [fork_and_work(expected) for _ in range(10)] == [0] * 10
    finally:
        stop.set()
        worker.join()


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_multiprocessing_fork():
    work_in_parallel()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        results = pool.map_async(t.silu, [X, X[::-1], X[:7]]).get(DEADLINE)
    for given, y in zip([X, X[::-1], X[:7]], results, strict=True):
        assert same_bits(t.silu(given), y)


def run_in_new_process(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_daemon_thread_computes_while_the_interpreter_ends():
    run_in_new_process("""
import threading, time
import numpy as np, tensor_ops_cpp as t

class EndsSlowly:
    def __del__(self, sleep=time.sleep):
        sleep(0.5)

def keep_working(x, started):
    while True:
        t.silu(x)
        started.set()

started = threading.Event()
x = np.ones((64, 4096), np.float32)
threading.Thread(target=keep_working, args=(x, started), daemon=True).start()
started.wait()
kept = EndsSlowly()
""")


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks here")
def test_signals_are_left_to_the_threads_of_python():
    """A signal that every thread of Python's blocks waits for sigwait(), and ends no process."""
    run_in_new_process("""
import os, signal
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's own threads take signals
import numpy as np, tensor_ops_cpp as t

t.silu(np.ones((64, 4096), np.float32), num_threads=3)
assert signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]) == set()
os.kill(os.getpid(), signal.SIGUSR1)
assert signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1
""")


@pytest.mark.unsanitized(reason="AddressSanitizer does not survive a limit of memory")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
def test_no_more_threads_to_be_had():
    run_in_new_process("""
import resource
import numpy as np, tensor_ops_cpp as t

x = np.linspace(-3, 3, 2**16, dtype=np.float32)
expected = t.silu(x, num_threads=1).tobytes()
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 2**22
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for _ in range(3):
    assert t.silu(x, num_threads=64).tobytes() == expected
""")


@needs_affinity
def test_one_cpu_is_left_while_threads_are_there():
    run_in_new_process("""
import os, time
import numpy as np, tensor_ops_cpp as t

x = np.linspace(-3, 3, 2**18, dtype=np.float32)
expected = t.silu(x, num_threads=1).tobytes()
everywhere = os.sched_getaffinity(0)

def work():
    for pause in (0, 0.001, 0.02):
        for _ in range(20):
            assert t.silu(x, num_threads=3).tobytes() == expected
            time.sleep(pause)

def move_all_threads_to(cpus):
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cpus)

work()
for cpu in everywhere:
    move_all_threads_to({cpu})
    work()
    assert all(os.sched_getaffinity(int(i)) == {cpu} for i in os.listdir("/proc/self/task"))
move_all_threads_to(everywhere)
work()
""")


@needs_affinity
def test_threads_stay_where_the_process_may_run():
    """Also those that leave the caller's CPU to the caller."""
    run_in_new_process("""
import os, time
import numpy as np, tensor_ops_cpp as t

x = np.ones(2**18, np.float32)
allowed = os.sched_getaffinity(0)
for _ in range(20):
    t.silu(x, num_threads=4)
    time.sleep(0.005)
for thread in os.listdir("/proc/self/task"):
    assert os.sched_getaffinity(int(thread)) <= allowed
""")


@pytest.mark.parametrize("pause", [0, 0.02], ids=["spinning", "sleeping"])
def test_process_ends_while_threads_wait(pause):
    run_in_new_process(f"""
import time
import numpy as np, tensor_ops_cpp as t

t.silu(np.ones(2**18, np.float32), num_threads=4)
time.sleep({pause})
""")


def test_more_busy_processes_than_cpus():
    expected = work_in_parallel()
    count = 2 * (os.cpu_count() or 1)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        for pause in [0] * 20 + [0.02] * 5:
            time.sleep(pause)
            assert work_in_parallel() == expected
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.parametrize("count", [2**10, 2**14, 2**16, 2**19])
def test_threads_chosen_by_the_call_change_nothing(count, threads):
    """Whether threads are asleep, are woken for the many calls of a loop, or are awake."""
    x = np.linspace(-3, 3, count, dtype=np.float32)
    expected = t.silu(x, num_threads=1)
    t.set_num_threads(4)
    for pause in (0, 0.02):
        time.sleep(pause)
        assert all(same_bits(t.silu(x), expected) for _ in range(20))


def fesetround(mode):
    assert ctypes.CDLL(None).fesetround(mode) == 0


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="knows the number of FE_UPWARD there only",
)
@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_rounding_of_the_caller_changes_nothing(op, kwargs, dtype, rng):
    given = arguments(op, (64, 130), dtype, rng)
    expected = OPS[op](*given, **kwargs)
    fesetround({"x86_64": 0x800, "aarch64": 0x400000}[platform.machine()])
    try:
        results = [OPS[op](*given, **kwargs, num_threads=n) for n in (1, 3)]
        assert 1 + 2**-60 > 1  # and is what it was after the calls
    finally:
        fesetround(0)
    assert all(same_bits(result, expected) for result in results)


def test_more_threads_than_rows(rng):
    x = rng.normal(size=(2, 4096)).astype(np.float32)
    assert same_bits(t.softmax(x, num_threads=64), t.softmax(x, num_threads=1))
    assert same_bits(t.silu(x, num_threads=10**6), t.silu(x, num_threads=1))

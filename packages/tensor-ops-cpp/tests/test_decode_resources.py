"""Resources of executables are freed, also where making one fails, is interrupted, or forks."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from decode_llama import Llama, run_step

import tensor_ops_cpp

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's /proc, and fork")
LLAMA = Llama()
TOKENS = np.arange(30)


def taken():
    """The threads, open files, mappings and megabytes of this process."""
    gc.collect()
    process = Path("/proc/self")
    counts = [len(os.listdir(process / name)) for name in ("task", "fd")]
    mappings = len((process / "maps").read_text().splitlines())
    pages = int((process / "statm").read_text().split()[1])
    return np.array([*counts, mappings, pages * 4096 / 2**20])


def make_and_drop(times, **given):
    for i in range(times):
        made = LLAMA.compile(num_workers=3, **given)
        if i % 10 == 0:
            run_step(made, [(0, 0, TOKENS)])
        if i % 2:
            made.close()


@pytest.mark.unsanitized(reason="freed memory is kept there for a while")
@pytest.mark.nightly
def test_a_thousand_executables_leave_nothing():
    make_and_drop(50)
    before = taken()
    make_and_drop(1000)
    assert np.all(taken() - before <= [0, 0, 20, 4])


def stop(done, size):
    raise KeyboardInterrupt


@pytest.mark.unsanitized(reason="freed memory is kept there for a while")
def test_compilations_that_end_early_leave_nothing():
    def fail_often(times):
        for _ in range(times):
            with pytest.raises(KeyboardInterrupt):
                LLAMA.compile(num_workers=3, progress=stop)

    fail_often(20)
    before = taken()
    fail_often(300)
    assert np.all(taken() - before <= [0, 0, 20, 4])


def test_ctrl_c_ends_a_compilation():
    def press(done, size):
        signal.raise_signal(signal.SIGINT)

    # A shell lets what it starts in the background ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            LLAMA.compile(progress=press)
    finally:
        signal.signal(signal.SIGINT, before)


def test_numbers_of_workers_out_of_range_are_refused():
    for count in (0, -1, 10**6, 2**70):
        with pytest.raises(ValueError, match=rf"num_workers must be from 1 to \d+, got {count}$"):
            LLAMA.compile(num_workers=count)


LIMITED = """
import json, resource, sys
sys.path.insert(0, sys.argv[1])
from decode_llama import Llama
import tensor_ops_cpp
llama = Llama()
llama.compile(num_workers=4).close()
large = llama.program
large["limits"] = {**large["limits"], "num_pages": 2**20}
large = json.dumps(large)
def used():
    return int(open("/proc/self/statm").read().split()[0]) * 4096
def attempt(megabytes):
    resource.setrlimit(resource.RLIMIT_AS, (used() + megabytes * 2**20, resource.RLIM_INFINITY))
    try:
        tensor_ops_cpp.compile_program(large, llama.tensors, num_workers=4)
    except (MemoryError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
print(attempt(100))
before = used()
for megabytes in range(0, 2000, 10):
    attempt(megabytes)
print(attempt(2**14))
print((used() - before) >> 20)
"""


@pytest.mark.unsanitized(reason="AddressSanitizer does not survive a limit of memory")
def test_where_memory_ends_an_error_says_for_what_and_nothing_is_lost():
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        # The C library reserves 64 MB of addresses for each thread that meets another in malloc.
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    refused, made, grown = done.stdout.splitlines()
    assert refused == "MemoryError: compile_program: no memory for caches: 1342177280 bytes"
    assert made == "None"
    assert int(grown) < 100  # the stacks that the C library keeps for the next threads


def child_says(executable):
    """The exit status of a child that is told so, and compiles and runs a program of its own."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    signal.alarm(60)
    try:
        executable.run(1, 1)
    except RuntimeError as error:
        executable.close()
        own = LLAMA.compile(num_workers=2)
        run_step(own, [(0, 0, TOKENS)])
        os._exit(7 if "forked" in str(error) else 8)
    os._exit(9)


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
@pytest.mark.unsanitized(reason="its allocator may be locked in a child of several threads")
def test_a_process_may_fork_while_a_step_runs():
    made = LLAMA.compile(num_workers=2)
    run_step(made, [(0, 0, TOKENS)])
    expected, is_over = made.arrays["logits"].copy(), threading.Event()

    def steps():
        while not is_over.is_set():
            made.run(len(TOKENS), len(TOKENS))

    thread = threading.Thread(target=steps)
    thread.start()
    try:
        assert [child_says(made) for _ in range(20)] == [7] * 20
    finally:
        is_over.set()
        thread.join(60)
    np.testing.assert_array_equal(made.arrays["logits"], expected)


def test_progress_may_run_another_executable():
    other = LLAMA.compile(num_workers=2)
    run_step(other, [(0, 0, TOKENS)])
    expected = other.arrays["logits"].copy()
    text = json.dumps(LLAMA.program)
    made = tensor_ops_cpp.compile_program(
        text, LLAMA.tensors, num_workers=2, progress=lambda done, size: other.run(30, 30)
    )
    run_step(made, [(0, 0, TOKENS)])
    np.testing.assert_array_equal(made.arrays["logits"], expected)

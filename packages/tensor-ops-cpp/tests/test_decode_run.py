"""Executables in use: what they cost, how they end, and what else may go on meanwhile."""

import gc
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from decode_llama import WORDS, Llama, run_alone, run_step

import tensor_ops_cpp

HERE = Path(__file__).parent
TOKENS = np.random.default_rng(5).integers(0, WORDS, 30)
LLAMA = Llama()
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this system")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux's /proc and LD_PRELOAD")


def bits(executable):
    return run_alone(executable, TOKENS, 4)[0].tobytes()


@pytest.fixture
def executable():
    made = LLAMA.compile(num_workers=2)
    yield made
    made.close()


def test_says_what_it_was_made_with(executable):
    assert executable.num_workers == 2
    assert executable.options == {"activations": "int8x2"}
    assert set(executable.memory) == {"weights", "caches", "activations", "scratch", "arrays"}
    floats = sum(tensor.size for tensor in LLAMA.tensors.values())
    # The embedding stays where it is; rows are filled up to whole tiles.
    assert 4 * (floats - WORDS * 96) <= executable.memory["weights"] < 6 * floats
    assert executable.arrays["page_table"].shape == (9, 16)
    assert executable.arrays["seed"].dtype == np.uint64
    assert np.all(executable.arrays["top_p"] == 1)


def test_progress_counts_bytes_to_the_end():
    seen = []
    LLAMA.compile(progress=lambda done, size: seen.append((done, size))).close()
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1] == {size for _, size in seen}.pop()


def test_an_error_of_progress_ends_the_compilation():
    def fail(done, size):
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        LLAMA.compile(progress=fail)


def test_tensors_may_be_read_only_and_are_needed_no_longer_but_tables():
    expected = LLAMA.compile()
    tensors = {name: tensor.copy() for name, tensor in LLAMA.tensors.items()}
    for tensor in tensors.values():
        tensor.flags.writeable = False
    made = tensor_ops_cpp.compile_program(json.dumps(LLAMA.program), tensors)
    for name, tensor in tensors.items():
        tensor.flags.writeable = True
        if name != "embedding":
            tensor[:] = np.nan
    del tensors
    gc.collect()
    assert bits(made) == bits(expected)


def test_tensors_of_torch_are_read_in_place():
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(tensor) for name, tensor in LLAMA.tensors.items()}
    made = tensor_ops_cpp.compile_program(json.dumps(LLAMA.program), tensors)
    assert bits(made) == bits(LLAMA.compile())
    raw = Llama(formats=["q8_0", "f16"])
    tensors = {name: torch.from_numpy(tensor) for name, tensor in raw.tensors.items()}
    made = tensor_ops_cpp.compile_program(json.dumps(raw.program), tensors)
    assert bits(made) == bits(raw.compile())


def test_close_twice_is_fine_and_a_step_after_it_is_an_error(executable):
    arrays = executable.arrays
    run_step(executable, [(0, 0, TOKENS[:3])])
    logits = arrays["logits"][:3].copy()
    executable.close()
    executable.close()
    with pytest.raises(RuntimeError, match="closed; compile the program again"):
        executable.run(1, 1)
    np.testing.assert_array_equal(arrays["logits"][:3], logits)


def test_arrays_outlive_the_executable():
    made = LLAMA.compile()
    run_step(made, [(0, 0, TOKENS[:3])])
    logits, expected = made.arrays["logits"], made.arrays["logits"].copy()
    del made
    gc.collect()
    np.testing.assert_array_equal(logits, expected)


def test_tokens_that_are_not_selected_cost_no_logits(executable):
    run_step(executable, [(0, 0, TOKENS[:3])])
    executable.arrays["logits"][:] = 7
    executable.run(3, 0)
    assert np.all(executable.arrays["logits"] == 7)


def test_two_executables_in_two_threads():
    made = [LLAMA.compile(num_workers=2) for _ in range(2)]
    expected = bits(made[0])

    def rounds(executable):
        return {bits(executable) for _ in range(5)}

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(rounds, each) for each in made]
        assert all(job.result(timeout=120) == {expected} for job in jobs)
    for each in made:
        each.close()


def test_steps_of_two_threads_take_turns(executable):
    run_step(executable, [(0, 0, TOKENS[:8])])
    expected = executable.arrays["logits"][:8].copy()
    with ThreadPoolExecutor(4) as pool:
        for job in [pool.submit(executable.run, 8, 8) for _ in range(200)]:
            job.result(timeout=120)
    np.testing.assert_array_equal(executable.arrays["logits"][:8], expected)


def test_close_waits_for_a_step():
    made = LLAMA.compile(num_workers=2)
    run_step(made, [(0, 0, TOKENS)])
    errors = []

    def steps():
        try:
            while True:
                made.run(len(TOKENS), 1)
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=steps)
    thread.start()
    time.sleep(0.05)
    made.close()
    thread.join(60)
    assert "closed" in errors[0]


def threads_of_process():
    return set(os.listdir("/proc/self/task"))


@on_linux
def test_threads_end_with_their_executable():
    before = threads_of_process()
    made = [LLAMA.compile(num_workers=4) for _ in range(3)]
    started = threads_of_process() - before
    assert len(started) == 9
    for each in made[:2]:
        each.close()
    del made[2], each
    gc.collect()
    # The system lists a thread for a moment after it was joined.
    deadline = time.monotonic() + 30
    while started & threads_of_process() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not started & threads_of_process()


@on_linux
def test_idle_threads_sleep():
    made = LLAMA.compile(num_workers=4)
    bits(made)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1
    made.close()


COUNTER = """
#include <stdlib.h>
static volatile long count;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
#define COUNT __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED)
void *malloc(size_t n) { COUNT; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { COUNT; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { COUNT; return __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { COUNT; return __libc_memalign(a, n); }
long allocations(void) { return count; }
"""
STEADY = """
import ctypes, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from decode_llama import Llama, run_step
count = ctypes.CDLL(None).allocations
count.restype = ctypes.c_long
made = Llama().compile(num_workers=2)
made.arrays["temperature"][:] = 0.7
made.arrays["top_p"][:] = 0.9
made.arrays["num_edits"][:] = 9
made.arrays["edit_penalties"][:] = 1.2
run_step(made, [(0, 0, range(30)), (1, 0, range(6))])
run, least = made.run, 10**9
def pages():
    return int(open("/proc/self/statm").read().split()[1])
for _ in range(20):
    before = count()
    run(36, 36)
    least = min(least, count() - before)
for _ in range(200):
    run(36, 36)
resident = pages()
for _ in range(1000):
    run(36, 36)
print(least, pages() - resident)
"""


@on_linux
@pytest.mark.unsanitized(reason="sanitizers have allocators of their own")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
def test_a_step_allocates_nothing_and_a_thousand_do_not_grow(tmp_path):
    source, library = tmp_path / "count.c", tmp_path / "count.so"
    source.write_text(COUNTER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    done = subprocess.run(
        [sys.executable, "-c", STEADY, str(HERE)],
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONMALLOC": "pymalloc"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    allocations, pages = map(int, done.stdout.split())
    assert allocations == 0
    assert pages < 64


def in_child(function):
    """Result of a function in a forked child."""
    receive, send = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        try:
            send.send(function())
        finally:
            os._exit(0)
    assert receive.poll(60), "the child hangs"
    result = receive.recv()
    os.waitpid(pid, 0)
    return result


@needs_fork
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_must_compile_again_and_can(executable):
    expected = bits(executable)

    def child():
        try:
            executable.run(1, 1)
            message = "ran"
        except RuntimeError as error:
            message = str(error)
        executable.close()
        own = LLAMA.compile(num_workers=2)
        return message, bits(own) == expected

    message, is_equal = in_child(child)
    assert "forked" in message
    assert "compile the program again in the child" in message
    assert is_equal
    assert bits(executable) == expected


INTERRUPTED = """
import sys, threading, signal, os
sys.path.insert(0, sys.argv[1])
from decode_llama import Llama, run_step
made = Llama().compile(num_workers=2)
run_step(made, [(0, 0, range(30))])
print("running", flush=True)
try:
    while True:
        made.run(30, 30)
except KeyboardInterrupt:
    made.run(30, 30)
    made.close()
    print("ended", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process")
def test_ctrl_c_ends_a_loop_of_steps(press_ctrl_c):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(HERE)],
        stdout=subprocess.PIPE,
        text=True,
        # A shell lets what it starts in the background ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    with process:
        assert process.stdout.readline() == "running\n"
        time.sleep(0.1)
        out = press_ctrl_c(process)
    assert (out, process.returncode) == ("ended\n", 0)

"""PersistentKernel: its arguments, and its life through threads, forks and interrupts."""

import os
import subprocess
import sys
import threading

import pytest

import tensor_ops
from tensor_ops import BackendError, PersistentKernel
from tensor_ops_decode import ProgramError


@pytest.fixture
def kernel(runner):
    with PersistentKernel(backend=runner, max_seq_length=64) as kernel:
        kernel.compile()
        yield kernel


def test_tensor_ops_leads_to_it():
    assert tensor_ops.PersistentKernel is PersistentKernel
    assert "PersistentKernel" in dir(tensor_ops)


def test_without_its_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensor_ops_decode", None)
    assert "PersistentKernel" not in dir(tensor_ops)
    with pytest.raises(ImportError, match=r"pip install \./packages/tensor-ops-decode"):
        tensor_ops.PersistentKernel  # noqa: B018 - raises
    with pytest.raises(AttributeError, match="no attribute 'NoKernel'"):
        tensor_ops.NoKernel  # noqa: B018 - raises


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"mode": "offline"}, ValueError, "mode must be 'decode', got 'offline'; .*add_request"),
        ({"mode": "online"}, ValueError, "for 'online' work, add_request.. between calls"),
        ({"mode": "encode"}, ValueError, "mode must be 'decode', got 'encode'$"),
        ({"world_size": 2}, ValueError, "mpi_rank is missing: with world_size=2 in one process"),
        ({"world_size": 0}, ValueError, "world_size must be a positive integer, got 0"),
        (
            {"communicator": "ucx"},
            ValueError,
            "communicator must be one of 'mpi', 'torch', 'local'",
        ),
        ({"mpi_rank": 1}, ValueError, "mpi_rank must be from 0 to 0, as world_size is 1; got 1"),
        ({"num_workers": 0}, ValueError, "num_workers must be a positive integer, got 0"),
        ({"page_size": True}, ValueError, "page_size must be a positive integer, got True"),
        ({"max_num_pages": 0}, ValueError, "max_num_pages is 0: there is no memory to count with"),
        ({"max_num_batched_tokens": 7}, ValueError, "at least max_num_batched_requests, 8"),
        ({"eos_token_id": [1, -1]}, ValueError, r"eos_token_id must be a token, .*\[1, -1\]"),
        (
            {"cache_dtype": "int4"},
            ValueError,
            "must be 'float32' or 'float16' or 'int8'",
        ),
        ({"meta_tensors": []}, TypeError, "no argument 'meta_tensors': the kernel keeps them"),
        ({"num_local_schedulers": 4}, TypeError, "the executor schedules its own work"),
        ({"num_remote_schedulers": 4}, TypeError, "the executor schedules its own work"),
        ({"profiler_tensor": 0}, TypeError, "no argument 'profiler_tensor': profile.. runs a step"),
        ({"trace_name": ""}, TypeError, "no argument 'trace_name': profile.. runs a step"),
        ({"spec_decode_config": 0}, TypeError, "num_speculative_tokens has the model check"),
        ({"page_sise": 4}, TypeError, "no argument 'page_sise'; did you mean 'page_size'"),
    ],
)
def test_wrong_arguments_say_what_to_do(arguments, error, words):
    with pytest.raises(error, match=words):
        PersistentKernel(backend="python", **arguments)


def test_a_missing_model_is_an_error_when_the_kernel_is_made():
    with pytest.raises(FileNotFoundError):
        PersistentKernel(backend="python", model="missing.gguf")


def test_pages_are_bounded_by_what_the_limits_need():
    limits = {"max_seq_length": 33, "max_num_batched_requests": 3, "page_size": 16}
    for given, reserved in ((None, 9), (100, 9), (4, 4)):
        kernel = PersistentKernel(backend="python", max_num_pages=given, **limits)
        assert kernel.explain().limits.num_pages == reserved


def test_an_option_that_the_backend_does_not_have_is_its_error():
    kernel = PersistentKernel(backend="python", activations="int8")
    says = "^the backend 'python' has no option 'activations', .*; leave it out$"
    with pytest.raises(ValueError, match=says):
        kernel.compile()


def test_it_is_compiled_once_and_before_it_is_called():
    kernel = PersistentKernel(backend="python")
    with pytest.raises(RuntimeError, match=r"call compile\(\) first"):
        kernel()
    with pytest.raises(RuntimeError, match=r"known once compile\(\)"):
        kernel.program  # noqa: B018 - raises
    calls = []
    kernel.compile(progress=lambda done, size: calls.append((done, size)))
    assert calls[-1][0] == calls[-1][1] > 0
    with pytest.raises(ProgramError, match="compiled already"):
        kernel.compile()


def test_the_program_of_the_stand_in_is_a_plain_value(kernel):
    program = kernel.program
    assert type(program).from_json(program.to_json()) == program
    assert program.outputs == ("logits", "next")


def test_after_closing_everything_but_closing_is_an_error(kernel):
    kernel()
    kernel.close()
    kernel.close()
    for use in (kernel, kernel.reset, kernel.synchronize, kernel.compile, lambda: kernel.requests):
        with pytest.raises(ValueError, match="the kernel is closed"):
            use()
    assert kernel.explain().memory == {}


def test_two_threads_that_call_one_kernel_get_each_token_once(kernel, runner):
    request = kernel.add_request([1, 2, 3])
    got = []

    def call():
        for _ in range(10):
            got.append(kernel()[request])
            kernel.synchronize()

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 20
    assert sorted(kernel.tokens(request)) == sorted(got)
    with PersistentKernel(backend=runner, max_seq_length=64) as other:
        other.compile()
        alone = other.add_request([1, 2, 3], max_new_tokens=20)
        while other.requests:
            other()
        assert other.tokens(alone) == kernel.tokens(request)


@pytest.mark.parametrize("place", ["before", "after"])
def test_an_interrupted_step_is_taken_again(runner, wrap_executables, place):
    made = wrap_executables(runner, Interruptible)
    kernel = PersistentKernel(backend=runner, max_seq_length=64)
    kernel.compile()
    request = kernel.add_request([1, 2, 3])
    kernel()
    made[0].interrupt = place
    with pytest.raises(KeyboardInterrupt):
        kernel()
    made[0].interrupt = None
    for _ in range(4):
        kernel()
    with PersistentKernel(backend=runner, max_seq_length=64) as other:
        other.compile()
        other.add_request([1, 2, 3])
        tokens = [next(iter(other().values())) for _ in range(5)]
    assert kernel.tokens(request) == tokens
    kernel.close()


class Interruptible:
    """An executable whose steps the user may interrupt."""

    def __init__(self, executable):
        self.arrays, self.close, self._run = executable.arrays, executable.close, executable.run
        self.interrupt = None

    def run(self, *counts):
        if self.interrupt == "before":
            raise KeyboardInterrupt
        self._run(*counts)
        if self.interrupt == "after":
            raise KeyboardInterrupt


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_makes_a_kernel_of_its_own(kernel, runner):
    kernel()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.raises(RuntimeError, match="forked; make a kernel of its own"):
                kernel()
            kernel.close()
            own = PersistentKernel(backend=runner, max_seq_length=64)
            own.compile()
            code = 0 if own() else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kernel()


def test_what_the_system_does_not_give_is_an_error_of_the_package(monkeypatch):
    module = pytest.importorskip("tensor_ops_cpp")

    def compile_program(*arguments, **options):
        raise RuntimeError("the system gives only 1 of 2 threads")

    monkeypatch.setattr(module, "compile_program", compile_program)
    with (
        PersistentKernel(backend="cpp", max_seq_length=64) as kernel,
        pytest.raises(BackendError, match="only 1 of 2 threads"),
    ):
        kernel.compile()


@pytest.mark.parametrize("whose", ["of the program", "of the thread"])
def test_a_daemon_thread_computes_while_the_interpreter_ends(whose):
    pytest.importorskip("tensor_ops_cpp")
    code = """
import sys, threading, time
from tensor_ops import PersistentKernel

class EndsSlowly:
    def __del__(self, sleep=time.sleep):
        sleep(0.5)

def kernel():
    return PersistentKernel(backend="cpp", max_seq_length=64)

def run(kernel):
    kernel.reset()
    kernel.add_request([1, 2, 3], ignore_eos=True)
    kernel.run(20)
    started.set()

def keep_running(kernel):
    kernel.compile()
    while True:
        run(kernel)

def keep_making():
    while True:
        with kernel() as own:
            own.compile(progress=lambda done, size: None)
            run(own)

started = threading.Event()
if sys.argv[1] == "of the program":
    kept = kernel()
    thread = threading.Thread(target=keep_running, args=(kept,), daemon=True)
else:
    thread = threading.Thread(target=keep_making, daemon=True)
thread.start()
assert started.wait(60)
last = EndsSlowly()
"""
    words = [sys.executable, "-c", code, whose]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")

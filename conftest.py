"""Options of every test run; no configuration of its machine may decide what the tests see."""

import atexit
import contextlib
import gc
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

OPS = {path.stem for path in Path(__file__).parent.glob("packages/tensor-ops/src/*/ops/*.py")}

os.umask(0o022)  # tests write configuration files, which are refused where others can write them
for name in list(os.environ):
    if name.startswith("TENSOR_OPS_") and name != "TENSOR_OPS_CPP_ISA":
        del os.environ[name]
if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores: where PyTorch's threads wait for work they must not keep one busy,
    # and those of NumPy's matrix products always do.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
else:  # a worker has its controller's
    no_config = tempfile.mkdtemp(prefix="tensor-ops-no-config-")
    atexit.register(shutil.rmtree, no_config, ignore_errors=True)
    os.environ["XDG_CONFIG_HOME"] = no_config


def pytest_addoption(parser):
    parser.addoption(
        "--require-backend",
        action="append",
        default=[],
        metavar="NAME",
        help="fail instead of skipping when this backend is unavailable (repeatable)",
    )
    parser.addoption(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="run only on this backend (repeatable)",
    )
    parser.addoption(
        "--pages",
        metavar="PACKAGE",
        help="follow the pages that need it: opencl, cuda, torch, kernels or vllm",
    )
    parser.addoption(
        "--launcher",
        action="append",
        default=[],
        metavar="NAME",
        help="run ranks by this only, which must be there: mpich, openmpi, torchrun (repeatable)",
    )
    parser.addoption("--nightly", action="store_true", help="run the tests that take minutes too")
    parser.addoption(
        "--every", type=int, default=1, metavar="N", help="run each Nth test only, as a sample"
    )
    parser.addoption(
        "--system",
        metavar="FILE",
        help="what describes the system that tests/platforms is about",
    )
    parser.addoption(
        "--dist-folder",
        metavar="FOLDER",
        help="the sdists and wheels that tests/wheels is about",
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "unsanitized(reason): has no meaning, or no time, in a build with sanitizers"
    )
    config.addinivalue_line(
        "markers", "compiles: runs a compiler, for which no time is lost where a GPU waits"
    )
    config.addinivalue_line("markers", "sample: one of the tests of wheels that take seconds")
    config.addinivalue_line("markers", "other_python: for a Python that does not run the tests")
    config.addinivalue_line("markers", "rehearsal: what becomes of files that were released")
    config.addinivalue_line("markers", "nightly: takes minutes, and runs with --nightly only")
    config.addinivalue_line(
        "markers",
        "sampled(n, *names): each nth case runs, by the sum of the places that its parameters of "
        "these names, if it has them, have in their lists; all run with --nightly",
    )


def pytest_collection_modifyitems(config, items):
    step = config.getoption("--every")
    if step > 1:
        config.hook.pytest_deselected(
            items=[each for number, each in enumerate(items) if number % step]
        )
        items[:] = items[::step]
    if config.getoption("--nightly"):
        return
    # Whoever names a test wants to see all of it, or why it is not run.
    named = tuple(each for each in config.args if "::" in each)
    chosen = [item for item in items if item.nodeid.startswith(named) or is_in_sample(item)]
    for item in chosen:
        if item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: --nightly runs it"))
    config.hook.pytest_deselected(items=list({*items} - {*chosen}))
    items[:] = chosen


def is_in_sample(item):
    """Return whether a test runs each time: not for minutes, nor as one of too many cases.

    Each value of a parameter runs with some of the others, if these have `n` values or more.
    """
    marker = item.get_closest_marker("sampled")
    if marker is None:
        return item.get_closest_marker("nightly") is None
    number, *names = marker.args
    indices = item.callspec.indices if hasattr(item, "callspec") else {}
    return sum(indices.get(name, 0) for name in names) % number == 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With --dist=loadgroup one process runs all tests that share what is slow to make.

    The groups of pytest-xdist 3.8 are lost with pytest 9.2.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

    return ByGroup(config, log)


def group_of(nodeid):
    """Return the op whose kernels a test needs, or its file, or the folder of tests of a wheel."""
    path, _, test = nodeid.partition("::")
    if "/wheel/" in path:
        return path.rpartition("/")[0]
    return min(OPS.intersection(re.split(r"[\[\]-]", test)), default=path)


def pytest_sessionstart():
    gc.disable()  # nothing becomes garbage while thousands of tests are collected


def pytest_collection_finish():
    gc.freeze()  # so that no test's gc.collect() looks at all of them
    # Tests make many objects and little garbage: by default every 700 new objects are looked at.
    gc.set_threshold(10_000)
    gc.enable()


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Return a function that has a file made by one of the processes of a run, for all of them.

    `make` is called with the file's path, in a folder of its own. A key stands for one file.
    """
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # that of a worker is within the run's

    def path_of(key, name, make):
        import fcntl  # which Windows lacks

        folder = base / "made_once" / hashlib.sha256(repr(key).encode()).hexdigest()
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / name).exists():
                make(folder / name)
        return folder / name

    return path_of


@pytest.fixture
def wrap_executables(monkeypatch):
    """Return a function that has all executables of a backend wrapped in objects of a class.

    It returns the list to which these objects are added when programs are compiled.
    """

    def wrap(backend, wrapper):
        from tensor_ops.extension import load_backend
        from tensor_ops_decode import reference

        module = reference if backend == "python" else load_backend(backend).module
        made, compiled = [], module.compile_program

        def compile_program(*args, **kwargs):
            made.append(wrapper(compiled(*args, **kwargs)))
            return made[-1]

        monkeypatch.setattr(module, "compile_program", compile_program)
        return made

    return wrap


@pytest.fixture
def press_ctrl_c():
    """Return a function that interrupts a process, and returns what it has written to its pipe."""

    def press(process):
        # Python loses the exception where C code that calls Python ignores it. But a process that
        # is only slow to end, on a busy machine, would have another status after a second signal.
        for _ in range(10):
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=30)[0]
        process.kill()
        process.communicate()
        pytest.fail("the process runs on, however often Ctrl-C is pressed")

    return press


@pytest.fixture
def interrupt_everywhere():
    """Return a function that makes a call again and again, with Ctrl-C at another place each time.

    The places are the lines, and the ends, of functions of some qualified names. After each call
    it yields.
    """

    class Interrupt:
        def __init__(self, names, place):
            self.names, self.place, self.passed = names, place, 0

        def __call__(self, frame, event, argument):
            if event == "call":
                return self if frame.f_code.co_qualname in self.names else None
            if event in ("line", "return"):
                self.passed += 1
                if self.passed == self.place:
                    raise KeyboardInterrupt
            return self

    def interrupted(call, names, place):
        interrupt, previous = Interrupt(names, place), sys.gettrace()
        sys.settrace(interrupt)
        try:
            call()
        finally:
            sys.settrace(previous)
        return interrupt.passed

    def run(call, names):
        for place in range(1, interrupted(call, names, 0) + 1):
            with pytest.raises(KeyboardInterrupt):
                interrupted(call, names, place)
            yield

    return run


@pytest.fixture
def interrupted_command(press_ctrl_c):
    """Return a function that runs a command of ours until a text is on its terminal, then Ctrl-C.

    The function returns the exit status, what is on standard output, and what the terminal shows
    from the text on.
    """

    def run(words, text):
        terminal, end = os.openpty()
        running = subprocess.Popen(
            [sys.executable, "-m", "tensor_ops", *words],
            stdout=subprocess.PIPE,
            stderr=end,
            text=True,
            # A shell lets what it starts in the background ignore the signal.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        os.close(end)
        seen = ""
        while text not in seen:
            seen += os.read(terminal, 1000).decode()
        out = press_ctrl_c(running)
        rest = os.read(terminal, 100_000).decode()
        os.close(terminal)
        return running.returncode, out, rest

    return run


@pytest.fixture
def interrupted_start():
    """Return a function that runs a command of ours and presses Ctrl-C seconds after it starts.

    The time is from the first moment at which the command and not Python decides what Ctrl-C does.
    The function returns the exit status and what is on standard error.
    """

    def run(words, seconds):
        with subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "tensor_ops", *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # A shell lets what it starts in the background ignore the signal.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        ) as running:
            for line in running.stderr:
                if line.endswith("tensor_ops.interrupts\n"):
                    break
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(seconds)  # what has ended cannot be interrupted any more
            running.send_signal(signal.SIGINT)
            rest = [line for line in running.stderr if not line.startswith("import time:")]
        return running.returncode, "".join(rest)

    return run

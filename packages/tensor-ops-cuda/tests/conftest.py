"""Fixtures: a device to run on, the emulated runtime, and processes of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# pytest's importlib mode does not put this directory on the path; the C interface is called as the
# conformance suite calls it, and ranks are those of the tests of decode programs.
HERE = Path(__file__).parent
sys.path += [
    str(HERE),
    *(str(HERE.parents[2] / "tests" / name) for name in ("conformance", "decode")),
]

EMULATED = "emulated on the host"


def pytest_collection_modifyitems(items):
    """Mark the tests of what is compiled once for several of them."""
    for item in items:
        if "made_once" in item.fixturenames:
            item.add_marker("compiles")


@pytest.fixture(scope="session")
def device(request):
    """The facts of the device that NumPy arrays are computed on."""
    import tensor_ops_cuda

    found = tensor_ops_cuda.probe()
    if found["available"]:
        return tensor_ops_cuda.devices()[tensor_ops_cuda.get_cuda_info()["device"]]
    if "cuda" in request.config.getoption("--require-backend"):
        pytest.fail(f"--require-backend=cuda, but {found['reason']}")
    return pytest.skip(found["reason"])


@pytest.fixture(scope="session")
def runtime(device):
    """The emulated CUDA runtime, for tests that make streams and memory of their own."""
    if device.name != EMULATED:
        pytest.skip("not the emulated build")
    import emulated

    return emulated.Runtime()


@pytest.fixture(scope="session")
def is_emulated(device):
    """Whether kernels run on the host, where they take thousands of times as long."""
    return device.name == EMULATED


@pytest.fixture
def some_warp_is_behind(is_emulated, request):
    """Kernels of which one warp at a time runs only when all others wait; on a GPU as it comes."""
    if not is_emulated:
        yield
        return
    from emulated_kernels import Order

    runtime = request.getfixturevalue("runtime")
    runtime.emulatedSetOrder(Order.WARP_BEHIND, 1)
    yield
    runtime.emulatedSetOrder(Order.RANDOM, 1)


@pytest.fixture
def block_counts(device, is_emulated, request):
    """Numbers of blocks: one, as many as there are multiprocessors, and on a GPU some between."""
    if not is_emulated:
        most = device.compute_units
        yield sorted({1, 2, 3, most // 2, most - 1, most} - {0})
        return
    runtime = request.getfixturevalue("runtime")
    runtime.emulatedSetMultiprocessors(16)
    yield [1, 16]
    runtime.emulatedSetMultiprocessors(4)


@pytest.fixture
def each_order(is_emulated, request):
    """A function whose rounds run threads in one order each; 20 rounds on a GPU, as it orders them.

    A race shows as other bits in one of them.
    """
    if not is_emulated:
        yield lambda: range(20)
        return
    from emulated_kernels import Order

    runtime = request.getfixturevalue("runtime")

    def orders():
        for order in Order:
            runtime.emulatedSetOrder(order, 7)
            yield order

    yield orders
    runtime.emulatedSetOrder(Order.RANDOM, 1)


@pytest.fixture(scope="session")
def cooperative_kernels(made_once):
    """Kernels whose blocks run at once, and a runtime of their own."""
    import emulated_kernels

    compiler = shutil.which("c++") or pytest.skip("c++ is not installed")
    path = made_once(
        "cooperative kernels", "kernels.so",
        lambda path: emulated_kernels.compile_kernels(compiler, path),
    )  # fmt: skip
    return emulated_kernels.Kernels(path)


@pytest.fixture
def kernels(cooperative_kernels):
    """The same, as they are before a test has chosen anything."""
    yield cooperative_kernels
    cooperative_kernels.reset()


@pytest.fixture
def rng(request):
    """A generator seeded from the test's name."""
    return np.random.default_rng(list(request.node.name.encode()))


@pytest.fixture
def small_chunks(device):
    """Host calls in many chunks."""
    from tensor_ops_cuda import _native

    before = _native.chunk_bytes()
    _native.set_chunk_bytes(1000)
    yield
    _native.set_chunk_bytes(before)


@pytest.fixture
def python(tmp_path):
    """A function that runs code in a new interpreter and returns what it prints."""

    def run(code, *, fails=False, **environment):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            env=os.environ | environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout + done.stderr

    return run

"""Lets tests import the modules beside them, and run on every backend that runs programs."""

import sys
from pathlib import Path

import pytest

from tensor_ops import PersistentKernel
from tensor_ops.extension import load_backend

# pytest's importlib mode does not put this directory on the path.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=["python", "cpp"])
def runner(request):
    """Return the name of a backend that runs programs."""
    backend = load_backend(request.param)
    if backend.reason is not None:
        pytest.skip(f"{request.param}: {backend.reason}")
    if request.param != "python" and not backend.capabilities.runs_programs:
        pytest.skip(f"{request.param} runs no programs")
    return request.param


@pytest.fixture
def stand_in(runner):
    """Return a function that makes compiled kernels of the stand-in, closed after the test."""
    kernels = []

    def make(**arguments):
        kernel = PersistentKernel(backend=runner, **arguments)
        kernels.append(kernel)
        kernel.compile()
        return kernel

    yield make
    for kernel in kernels:
        kernel.close()

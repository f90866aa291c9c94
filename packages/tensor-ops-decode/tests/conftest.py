"""Lets tests import the modules beside them, and run on every backend that runs programs."""

import sys
from pathlib import Path

import pytest

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

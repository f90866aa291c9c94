"""Fixtures."""

import sys
from pathlib import Path

import numpy as np
import pytest

import tensor_ops_cpp

# pytest's importlib mode does not put this directory on the path.
sys.path.append(str(Path(__file__).parent))

from cpp_cases import DTYPES


@pytest.fixture(params=list(DTYPES))
def dtype(request):
    return DTYPES[request.param]


@pytest.fixture
def rng(request):
    """A generator seeded from the test's name."""
    return np.random.default_rng(list(request.node.name.encode()))


@pytest.fixture
def threads():
    """Restores the number of threads."""
    before = tensor_ops_cpp.get_num_threads()
    yield
    tensor_ops_cpp.set_num_threads(before)


@pytest.fixture
def empty_pool():
    """An empty pool of 64 MiB, whatever the tests before left."""
    before = tensor_ops_cpp.pool_info()["limit"]
    tensor_ops_cpp.set_pool_limit(64 * 2**20)
    tensor_ops_cpp.trim_pool()
    yield
    tensor_ops_cpp.set_pool_limit(before)

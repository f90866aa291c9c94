"""Overhead of `tensor_ops.<op>` over a direct call of the backend's function."""

import numpy as np
import pytest

import tensor_ops
from tensor_ops import tuning
from tensor_ops.config import tuning_table
from tensor_ops.config.tuning_table import Entry

tensor_ops_cpp = pytest.importorskip("tensor_ops_cpp")

X = np.ones((1, 64), np.float32)
WEIGHT = np.ones(64, np.float32)


@pytest.mark.benchmark(group="call of rms_norm on (1, 64) float32")
def test_direct(benchmark):
    benchmark(tensor_ops_cpp.rms_norm, X, WEIGHT)


@pytest.mark.benchmark(group="call of rms_norm on (1, 64) float32")
def test_dispatched(benchmark):
    benchmark(tensor_ops.rms_norm, X, WEIGHT)


@pytest.mark.benchmark(group="call of rms_norm on (1, 64) float32")
def test_dispatched_within_use_backend(benchmark):
    with tensor_ops.use_backend("cpp"):
        benchmark(tensor_ops.rms_norm, X, WEIGHT)


@pytest.mark.benchmark(group="call of rms_norm on (1, 64) float32")
def test_dispatched_with_backend_on_the_call(benchmark):
    benchmark(tensor_ops.rms_norm, X, WEIGHT, backend="cpp")


@pytest.mark.benchmark(group="call of rms_norm on (1, 64) float32")
def test_dispatched_to_the_fastest(benchmark, fastest):
    """With the step that chooses by size, because another backend is the fastest for large rows."""
    with tensor_ops.use_backend("fastest"):
        benchmark(tensor_ops.rms_norm, X, WEIGHT)


@pytest.fixture
def fastest(monkeypatch, tmp_path):
    """A table by which cpp is the fastest for small arrays and python for large ones."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sizes = {64: {"cpp": 1e-6, "python": 2e-6}, 4096: {"cpp": 2e-6, "python": 1e-6}}
    entries = (
        Entry("rms_norm", "float32", (size,), "2026-01-01", seconds, {})
        for size, seconds in sizes.items()
    )
    path = tuning_table.default_path()
    path.parent.mkdir()
    tuning_table.write(path, tuning.table_of(["cpp", "python"], entries))
    tensor_ops.reload_config()
    yield
    monkeypatch.undo()
    tensor_ops.reload_config()

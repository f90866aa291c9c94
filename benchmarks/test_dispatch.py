"""What `tensor_ops.<op>` costs beside a direct call of the backend's function."""

import numpy as np
import pytest

import tensor_ops

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

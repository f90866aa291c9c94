"""Fixtures of the tests of sessions of ONNX Runtime."""

import sys
from pathlib import Path

import numpy as np
import pytest

import tensor_ops

# pytest's importlib mode does not put this folder, which has `onnx_models`, on the path.
sys.path.append(str(Path(__file__).parent))


@pytest.fixture
def block():
    """A model of three of the ops in a row."""
    from onnx_models import model_of, node

    return model_of(
        node("LayerNormalization", "x weight bias", "h", epsilon=1e-5),
        node("Gelu", "h", "g", approximate="tanh"),
        node("Softmax", "g", axis=-1),
    )


@pytest.fixture
def x():
    from onnx_models import RNG, N

    return RNG.standard_normal((5, N), dtype=np.float32)


@pytest.fixture
def nothing_configured():
    tensor_ops.set_default_backend(None)
    tensor_ops.reload_config()
    yield
    tensor_ops.set_default_backend(None)

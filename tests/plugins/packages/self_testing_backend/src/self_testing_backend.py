"""A backend whose import takes its time and then compares an op with the NumPy backend's."""

import time

import numpy as np

import tensor_ops

API_VERSION = 1


def probe():
    return {"available": True, "reason": None, "devices": ["cpu"]}


def info():
    return {"version": "1.2.3"}


def supports(op, dtype, device):
    return None if device == "cpu" else f"not on {device}"


def silu(x, *, out=None):
    return np.divide(x, 1 + np.exp(-x), out=out)


time.sleep(0.2)
_X = np.ones(3, np.float32)
np.testing.assert_allclose(silu(_X), tensor_ops.silu(_X, backend="python"), rtol=1e-6)

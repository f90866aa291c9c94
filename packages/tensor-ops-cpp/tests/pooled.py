"""Results that are large enough for the pool, and what their tests ask of them."""

import os
import subprocess
import sys

import numpy as np

import tensor_ops_cpp as t

LEAST = 128 * 1024  # README.md, "Memory"
MIB = 2**20
X = np.linspace(-3, 3, MIB // 4, dtype=np.float32)


def address(array):
    return array.ctypes.data


def result(mebibytes=1, value=0.0):
    """A result of about so many bytes, and something to tell it by."""
    return t.silu(np.full(int(mebibytes * MIB) // 8, value))


def handler_of(array):
    return np._core.multiarray.get_handler_name(array)


def change(before):
    """The change of pool_info() since `before`."""
    return {key: value - before[key] for key, value in t.pool_info().items()}


def run_in_new_process(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done

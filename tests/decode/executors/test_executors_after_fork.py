"""A child of a process that used OpenCL loads a model without a word about OpenCL."""

import subprocess
import sys

import pytest

from tensor_ops import backends

SCRIPT = """
import os, warnings
import numpy as np
import tensor_ops
warnings.simplefilter("error")
warnings.filterwarnings("ignore", message=".*use of fork")  # beside threads of a driver
tensor_ops.silu(np.ones(8, np.float32), backend="opencl")
child = os.fork()
if child == 0:
    status = 1
    try:
        with tensor_ops.PersistentKernel() as kernel:
            kernel.compile()
            kernel()
            print(kernel.backend, flush=True)
        status = 0
    finally:
        os._exit(status)
_, status = os.waitpid(child, 0)
raise SystemExit(os.waitstatus_to_exitcode(status))
"""


def test_a_backend_that_runs_no_programs_is_not_missed(cpp):
    reason = backends.load("opencl").reason
    if reason is not None:
        pytest.skip(f"opencl: {reason}")
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stdout) == (0, "cpp\n"), done.stderr

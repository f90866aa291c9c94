"""Nodes and whole models at every instruction set of this processor that C++ has code for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensor_ops import backends

FOLDER = Path(__file__).parents[1]
RUNS = ["programs/test_nodes.py", "models/test_llama.py"]


@pytest.mark.nightly
def test_every_level_of_this_processor():
    module = backends.load("cpp").module
    if module is None:
        pytest.skip("there is no C++ backend")
    # The level in use is that of all other tests.
    for level in set(module.get_optimization_info()["cpu_levels"]) - {module.simd_level}:
        command = [sys.executable, "-m", "pytest", "-q", "--backend=cpp", "--require-backend=cpp"]
        done = subprocess.run(
            command + [str(FOLDER / name) for name in RUNS],
            env=os.environ | {"TENSOR_OPS_CPP_ISA": level},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert done.returncode == 0, f"{level}:\n{done.stdout[-3000:]}"

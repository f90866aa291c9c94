"""Time of `import tensor_ops` beside `import numpy`, each in a new process."""

import subprocess
import sys

import pytest


@pytest.mark.benchmark(group="a process that imports")
@pytest.mark.parametrize("module", ["numpy", "tensor_ops"])
def test_import(benchmark, module):
    command = [sys.executable, "-c", f"import {module}"]
    benchmark.pedantic(subprocess.run, [command], {"check": True}, rounds=30, warmup_rounds=3)

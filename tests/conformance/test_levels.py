"""Every instruction set that the C++ backend has code for, by name, on this processor."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensor_ops import backends

SUITE = Path(__file__).parent
RUNS = ["test_samples.py", "test_outputs.py"]
# A sample of a thousand tests on each level; --nightly runs all.
SAMPLE = "--every=5"


@pytest.fixture
def optimization(request):
    backend = backends.load("cpp")
    if backend.reason is not None:
        if "cpp" in request.config.getoption("--require-backend"):
            pytest.fail(f"--require-backend=cpp, but {backend.reason}")
        pytest.skip(backend.reason)
    return backend.module.get_optimization_info()


def test_every_level_of_this_processor(optimization, request):
    """A level that the processor has is compiled in, and the suite passes on it."""
    missing = set(optimization["cpu_levels"]) - set(optimization["compiled_levels"])
    assert not missing, "this processor has levels that were not compiled"
    here = os.environ.get("TENSOR_OPS_CPP_ISA") or optimization["level"]
    sample = [] if request.config.getoption("--nightly") else [SAMPLE]
    others = [level for level in optimization["cpu_levels"] if level != here]
    executed = {here} | {level for level in others if run_suite(level, *sample)}
    assert executed >= set(optimization["cpu_levels"])


def test_the_level_asked_for_is_in_use(optimization):
    asked = os.environ.get("TENSOR_OPS_CPP_ISA")
    assert optimization["level"] == (asked or optimization["cpu_levels"][-1])


def run_suite(level, *options):
    command = [sys.executable, "-m", "pytest", "-q", "--backend=cpp", "--require-backend=cpp"]
    # The first is in every sample.
    tests = [f"{__file__}::test_the_level_asked_for_is_in_use"]
    tests += [str(SUITE / name) for name in RUNS]
    done = subprocess.run(
        [*command, *options, *tests],
        env=os.environ | {"TENSOR_OPS_CPP_ISA": level},
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"--- {level}\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
    assert done.returncode == 0, f"the suite fails on {level}; its output is above"
    return True

"""Both commands of `tools/gpu_check.py` on the emulated device, with a sample of the tests."""

import json
import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from gpu_checks.stages import PARTS, STAGES

ROOT = Path(__file__).parents[2]
# Stages that are skipped: they need a GPU, or their times would mean nothing.
NEEDS_A_GPU = {"barriers", "benchmark", "decode_cases", "decode_times", "torch", "opencl"}
NEEDS_A_GPU |= {"decode_races", "sanitizers"}


@pytest.fixture(scope="module")
def wheels(request, tmp_path_factory):
    """The emulated build that is installed, as a wheel again."""
    if "cuda" in request.config.getoption("--require-backend"):
        import tensor_ops_cuda as cuda
    else:
        cuda = pytest.importorskip("tensor_ops_cuda", reason="the emulated build is not installed")
    if cuda.devices()[0].name != "emulated on the host":
        pytest.skip("not the emulated build")
    installed, folder = metadata.distribution("tensor-ops-cuda"), tmp_path_factory.mktemp("wheels")
    tag = next(line for line in installed.read_text("WHEEL").splitlines() if "Tag:" in line)
    name = f"tensor_ops_cuda-{installed.version}-{tag.split()[1]}.whl"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for file in installed.files:
            if file.suffix != ".pyc":
                wheel.write(file.locate(), file)
    return folder


def run(out, *words):
    """Run the command; return its exit status and the record."""
    environment = {name: text for name, text in os.environ.items() if "XDIST" not in name}
    command = [sys.executable, ROOT / "tools/gpu_check.py", "--emulate", "--out", out, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done, json.loads((out / "gpu_check.json").read_text(encoding="utf-8"))


def test_both_commands_check_all_that_needs_no_gpu(wheels, tmp_path):
    for part in PARTS:
        done, content = run(tmp_path, "--part", str(part), "--from-wheels", wheels)
        assert done.returncode == 0, done.stdout + (tmp_path / "gpu_check.log").read_text()
    found = {name: stage["status"] for name, stage in content["stages"].items()}
    assert found == {
        stage.name: "skipped" if stage.name in NEEDS_A_GPU else "passed" for stage in STAGES
    }
    assert content["complete"] is True
    counted = {name: stage["details"].get("passed") for name, stage in content["stages"].items()}
    assert all(counted[name] for name in ("smoke", "decode", "interop", "conformance", "tests"))


def test_a_short_budget_ends_the_last_stage_and_loses_nothing(wheels, tmp_path):
    """A stage that the chosen one needs is run too, though its name was not given."""
    words = ["--stages", "decode", "--part", "1", "--budget", "4", "--from-wheels", wheels]
    _, content = run(tmp_path, *words)
    assert content["stages"]["install"]["status"] == "passed"
    assert list(content["stages"]) == ["install", "decode"]

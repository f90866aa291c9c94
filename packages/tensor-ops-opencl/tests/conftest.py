"""Fixtures: a device to run on, devices that differ from it, and processes of their own."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# pytest's importlib mode does not put this directory on the path.
sys.path.append(str(Path(__file__).parent))

import tensor_ops_opencl
from tensor_ops_opencl import contexts, discovery


@pytest.fixture
def device(request):
    """The device that host arrays are computed on."""
    found = tensor_ops_opencl.probe()
    if found["available"]:
        return discovery.chosen()
    if "opencl" in request.config.getoption("--require-backend"):
        pytest.fail(f"--require-backend=opencl, but {found['reason']}")
    return pytest.skip(found["reason"])


@pytest.fixture
def use_device(request, device, monkeypatch):
    """A function that makes this process use the device as if it were another kind of one.

    A CPU's compiler takes five times as long to optimize the kernels of GPUs, whose own compilers
    do it otherwise: that is for the nightly run.
    """

    def use(**changes):
        if changes.get("kind") == "gpu" and not request.config.getoption("--nightly"):
            monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")
        changed = contexts.DeviceContext(dataclasses.replace(device, **changes))
        monkeypatch.setitem(contexts.by_setting, os.environ.get(discovery.VARIABLE, ""), changed)
        return changed

    return use


@pytest.fixture
def rng(request):
    """A generator seeded from the test's name."""
    return np.random.default_rng(list(request.node.name.encode()))


@pytest.fixture
def intel_package(tmp_path):
    """A function that installs an intel-opencl-rt, with a library or none.

    It returns the environment variables in which that one is found.
    """

    def install(library=None):
        site, place = tmp_path / "site", tmp_path / "lib" / "libintelocl.so"
        metadata = site / "intel_opencl_rt-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: intel-opencl-rt\n")
        (metadata / "RECORD").write_text("../lib/libintelocl.so,,\n" if library else "")
        if library:
            place.parent.mkdir()
            place.symlink_to(library)
        return {"PYTHONPATH": str(site)}

    return install


@pytest.fixture
def python(tmp_path):
    """A function that runs code in a new interpreter and returns what it prints."""

    def run(code, *, fails=False, **environment):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            env=os.environ | environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout + done.stderr

    return run

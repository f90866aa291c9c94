"""Machines without a platform, with a broken driver, without pyopencl: reasons, no more."""

import os
import re
import time

import pytest

from tensor_ops_opencl import drivers

# pyopencl's loader looks into the folder of pyopencl too, where PoCL's wheel puts its driver.
ALONE = "import os, pyopencl; os.environ['PYOPENCL_HOME'] = os.devnull; "
REASON = "import tensor_ops_opencl as t; print(t.probe()['reason'])"
CALL = "import numpy as np, tensor_ops_opencl as t; t.silu(np.zeros(3, np.float32))"


@pytest.fixture
def no_platform(tmp_path, intel_package):
    """The environment of a machine without an OpenCL driver."""
    folder = tmp_path / "no drivers"
    folder.mkdir()
    return intel_package() | {"OCL_ICD_VENDORS": f"{folder}/"}


@pytest.fixture
def install(monkeypatch):
    """The command that a message gives on this machine."""
    monkeypatch.setattr(drivers, "installed", lambda: None)
    return drivers.for_cpu()


def test_no_platform_says_what_to_install(python, no_platform, install):
    reason = python(ALONE + REASON, **no_platform)
    assert reason.startswith("no OpenCL platform was found")
    assert reason.rstrip().endswith(f"or for the CPU: {install}")
    assert len(reason.splitlines()) == 1  # nothing else is printed


def test_a_call_says_the_same(python, no_platform):
    error = python(ALONE + CALL, fails=True, **no_platform)
    assert "DeviceError: no OpenCL platform was found" in error


def test_the_doctor_says_what_to_install(python, no_platform, install):
    code = "from tensor_ops.__main__ import main; main(['doctor'])"
    report = python(ALONE + code, **no_platform)
    line = next(line for line in report.splitlines() if re.match(" +opencl +", line))
    assert "unavailable: no OpenCL platform was found" in line
    assert install in line


def test_a_broken_driver_is_named(python, tmp_path):
    folder = tmp_path / "drivers"
    folder.mkdir()
    (folder / "gone.icd").write_text("libno-such-driver.so.1\n")
    reason = python(ALONE + REASON, OCL_ICD_VENDORS=f"{folder}/")
    assert "gone.icd" in reason
    assert "libno-such-driver.so.1" in reason


def test_info_without_a_device(python, no_platform):
    code = "import tensor_ops_opencl as t; print(t.get_opencl_info()); print(t.info()['reason'])"
    printed = python(ALONE + code, **no_platform)
    assert "available" in printed
    assert printed.count("no OpenCL platform was found") == 2


def test_no_pyopencl(python):
    blocked = "import sys; sys.modules['pyopencl'] = None; "
    assert "pyopencl cannot be imported" in python(blocked + REASON)


def test_a_pyopencl_that_does_not_load(python, tmp_path):
    package = tmp_path / "pyopencl"
    package.mkdir()
    (package / "__init__.py").write_text("raise OSError('libOpenCL.so.1: cannot open')\n")
    reason = python(REASON)  # which starts in that folder
    assert "pyopencl cannot be imported: libOpenCL.so.1: cannot open" in reason


def test_pyopencl_cannot_write_its_cache(device, python, tmp_path):
    nowhere = f"{os.devnull}/cache"
    settings = {"XDG_CACHE_HOME": nowhere, "POCL_CACHE_DIR": str(tmp_path)}
    error = python(CALL, fails=True, **settings)
    assert "DeviceError: pyopencl cannot write its cache" in error
    assert "PYOPENCL_NO_CACHE=1" in error
    python(CALL, PYOPENCL_NO_CACHE="1", **settings)


def test_pocl_cannot_write_its_cache(device, python, intel_package):
    if "Portable" not in str(device):
        pytest.skip("the device is not PoCL's")
    variables = intel_package() | {"POCL_CACHE_DIR": f"{os.devnull}/cache"}
    assert "POCL_CACHE_DIR" in python(REASON, **variables)


def test_a_probe_is_quick(python, no_platform):
    start = time.perf_counter()
    python(ALONE + REASON, **no_platform)
    assert time.perf_counter() - start < 10

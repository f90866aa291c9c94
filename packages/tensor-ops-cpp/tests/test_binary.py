"""What the extension exports and loads.

That no code of a level can run on a lesser CPU is checked by the build: native/check_kernels.cmake.
"""

import shutil
import subprocess

import pytest

import tensor_ops_cpp
from tensor_ops_cpp import _native

pytestmark = pytest.mark.unsanitized(reason="a build with sanitizers links and exports more")


@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm here")
def test_exports_only_its_init_function():
    command = ["nm", "-D", "--defined-only", _native.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["PyInit__native"]


@pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf here")
def test_brings_no_openmp_runtime():
    """Whatever runtime torch or NumPy's BLAS bring stays the only one in the process."""
    command = ["readelf", "-d", _native.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "omp" not in done.stdout.lower()
    assert tensor_ops_cpp.has_openmp is False

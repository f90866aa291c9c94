"""What the extension exports and loads.

That no code of a level can run on a lesser CPU is checked by the build: native/check_kernels.cmake.
"""

import shutil
import subprocess
import sys

import pytest

import tensor_ops_cpp
from tensor_ops_cpp import _native


@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm here")
def test_exports_only_its_init_function():
    command = ["nm", "-D", "--defined-only", _native.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["PyInit__native"]


def test_libgomp_keeps_its_name():
    """A renamed copy would be a second OpenMP runtime beside torch's."""
    if not (tensor_ops_cpp.has_openmp and sys.platform == "linux"):
        pytest.skip("no libgomp in this build")
    with open("/proc/self/maps") as maps:
        libraries = {line.split("/")[-1].strip() for line in maps if "gomp" in line}
    assert {name.split(".so")[0] for name in libraries} == {"libgomp"}

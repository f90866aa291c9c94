"""The library by CMake alone, and a C program that loads it."""

import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
ROOT = PACKAGE.parents[1]
PROGRAM = ROOT / "tests/conformance/c_interface_program.c"
# Looking for these would be an error.
NO_PYTHON = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("Python", "nanobind")]
ONE_OP = ["-DTENSOR_OPS_CUDA_EMULATION=ON", "-DTENSOR_OPS_CUDA_OPS=silu"]
# Quick to compile: neither optimized nor with symbols for a debugger.
QUICK = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG="]

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.compiles,
    pytest.mark.unsanitized(reason="it builds a library of its own"),
]


def needed(name):
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


def run(*command):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """The installed files, where there is no Python."""
    cmake, folder = needed("cmake"), tmp_path_factory.mktemp("without_python")
    needed("c++")
    run(cmake, "-S", PACKAGE, "-B", folder / "build", *ONE_OP, *QUICK, *NO_PYTHON)
    run(cmake, "--build", folder / "build")
    run(cmake, "--install", folder / "build", "--prefix", folder / "prefix")
    return folder / "prefix"


def test_the_library_is_all_that_is_installed(prefix):
    files = [path.name for path in prefix.rglob("*") if path.is_file()]
    assert files == ["libtensor_ops_cuda.so"]


def test_a_c_program_computes_by_it(prefix, tmp_path):
    (library,) = prefix.rglob("libtensor_ops_cuda.so")
    program = tmp_path / "program"
    options = ["-std=c99", "-D_GNU_SOURCE", f"-I{ROOT / 'native/include'}"]
    run(needed("cc"), *options, PROGRAM, "-o", program, "-ldl", "-lm")
    assert run(program, library, "tensor_ops_cuda_backend") == "cuda has 1 ops\n"

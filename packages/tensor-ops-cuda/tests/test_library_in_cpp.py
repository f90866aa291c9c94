"""A C++ program that finds the library by the registry and computes on both kinds of memory."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulated import LIBRARY

import tensor_ops_cuda

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).parent / "programs/registry.cpp"

pytestmark = [
    pytest.mark.usefixtures("runtime"),
    pytest.mark.unsanitized(reason="the program has no sanitizer, which the library needs"),
]


def run(*command, **variables):
    done = subprocess.run(
        list(map(str, command)),
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needed(name):
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    options = ["-std=c++17", "-Wall", "-Wextra", "-Werror"]
    sources = [f"-I{ROOT / 'native/include'}", PROGRAM, "-o", folder / "program", "-ldl"]
    run(needed("c++"), *options, *sources)
    return folder / "program"


def test_host_and_device_arrays(program, tmp_path):
    variables = {"TENSOR_OPS_BACKEND_PATH": str(LIBRARY.parent), "HOME": str(tmp_path)}
    facts, host, device, mixed = run(program, LIBRARY, **variables).splitlines()
    assert facts == "cuda 1 cuda"
    x = (-3 + 0.5 * np.arange(12, dtype=np.float32)).reshape(3, 4)
    expected = [float(value).hex() for value in tensor_ops_cuda.silu(x).ravel()]
    for name, line in (("host", host), ("device", device)):
        assert line.split()[0] == name
        assert [float.fromhex(word).hex() for word in line.split()[1:]] == expected
    assert "silu: out is on cuda:0 and x is in host memory" in mixed

"""From a folder of wheels to the right numbers, in an empty environment of each Python."""

import json
import re
import shutil
import time

import pytest

from interpreters import ROOT, project, run

FIRST_STEPS = """
import numpy as np
import tensor_ops

x = np.linspace(-3, 3, 4096, dtype=np.float32)
y = tensor_ops.silu(x)
wide = x.astype(np.float64)
assert np.abs(y - wide / (1 + np.exp(-wide))).max() < 1e-6
print(tensor_ops.get_backend())
"""
DECODE = """
import tensor_ops
import tensor_ops_decode

print(tensor_ops_decode.__file__)
with tensor_ops.PersistentKernel() as kernel:
    kernel.compile()
    print(kernel.backend, len(kernel()))
"""
WITHOUT_PYTORCH = """
import tensor_ops_devices

(provider,) = tensor_ops_devices.resolve_ort_providers("auto", ["CPUExecutionProvider"])
print(provider, tensor_ops_devices.KernelPyTorchConfig().hardware.tpu.version)
"""
IN_PYTORCH = """
import sys
import torch
import tensor_ops_torch

assert tensor_ops_torch.__file__.startswith(sys.prefix)
x = torch.ones(1, requires_grad=True)
y = tensor_ops_torch.silu(x)
y.backward()
print(sys.prefix, f"{y.item():.5f}", f"{x.grad.item():.5f}")
"""
CMAKE_PROJECT = f"""
cmake_minimum_required(VERSION 3.21)
project(guide LANGUAGES CXX)
find_package(tensor_ops CONFIG REQUIRED)
add_executable(guide {ROOT}/tests/cpp_api/programs/guide.cpp)
target_link_libraries(guide PRIVATE tensor_ops::backend)
"""
SUITE = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml"]
SAMPLES = ROOT / "tests" / "conformance" / "test_samples.py"
# Every sample of every op, but for OpenCL two: it compiles each kernel for each dtype first.
FEW = ["-k", "(softmax or silu_mul) and not backward"]
RUNS = {"python": [], "cpp": [], "opencl": FEW}


@pytest.fixture(scope="module")
def environment(interpreter, dist):
    """An environment after ``pip install 'tensor-ops[cpp,opencl]'``, with the tests' packages."""
    fresh = interpreter.environment("all")
    folders = [dist, interpreter.suite_wheelhouse]
    fresh.install("tensor-ops[cpp,opencl]", folders=folders)
    fresh.install("pyopencl[pocl]", "pytest", "hypothesis", "mpmath", folders=folders)
    return fresh


def test_everything_fits_together(environment):
    assert environment.pip("check").strip() == "No broken requirements found."


def test_doctor_finds_every_backend(environment):
    found = json.loads(environment.command("doctor", "--json", "--require=cpp", "--require=opencl"))
    assert found["problems"] == []
    versions = {each["name"]: each["version"] for each in found["backends"] if each["available"]}
    assert versions.keys() >= {"python", "cpp", "opencl"}


def test_it_runs_what_is_installed_and_not_the_checkout(environment):
    for module in ("tensor_ops", "tensor_ops_cpp", "tensor_ops_opencl"):
        path = environment.python("-c", f"import {module}; print({module}.__file__)")
        assert path.startswith(str(environment.place))


@pytest.mark.parametrize("backend", RUNS)
def test_conformance(environment, backend):
    chosen = [f"--backend={backend}", f"--require-backend={backend}", *RUNS[backend]]
    said = environment.python(*SUITE, SAMPLES, *chosen)
    assert re.fullmatch(r"\d+ passed(, \d+ deselected)? in .*", said.splitlines()[-1]), said


def test_from_pip_to_the_right_numbers_in_a_minute(interpreter, dist):
    """A newcomer's steps; without network, so that nothing but our own part is timed."""
    interpreter.wheelhouse  # noqa: B018
    start = time.monotonic()
    fresh = interpreter.environment("newcomer")
    fresh.install("tensor-ops[cpp]", folders=[dist, interpreter.wheelhouse])
    assert fresh.python("-c", FIRST_STEPS).strip() == "cpp"
    assert time.monotonic() - start < 60


def test_a_backend_alone_needs_numpy_only(this_interpreter, dist):
    fresh = this_interpreter.environment("alone")
    fresh.install("tensor-ops-cpp", folders=[dist, this_interpreter.wheelhouse])
    code = "import numpy as np, tensor_ops_cpp; print(tensor_ops_cpp.silu(np.ones(1, np.float32)))"
    assert fresh.python("-c", code).strip() == "[0.7310586]"
    listed = json.loads(fresh.pip("list", "--format=json"))
    assert {each["name"] for each in listed} == {"numpy", "tensor-ops-cpp"}


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake here")
def test_the_guides_program_in_cpp(this_interpreter, dist, tmp_path):
    """Built with the installed package by each compiler, and run with an empty environment."""
    fresh = this_interpreter.environment("cpp")
    fresh.install("tensor-ops-cpp", folders=[dist, this_interpreter.wheelhouse])
    cmake_folder = fresh.python("-m", "tensor_ops_cpp", "--cmakedir").removesuffix("\n")
    tmp_path.joinpath("CMakeLists.txt").write_text(CMAKE_PROJECT, encoding="utf-8")
    compilers = [name for name in ("g++", "clang++") if shutil.which(name)]
    assert compilers
    for compiler in compilers:
        words = [f"-Dtensor_ops_DIR={cmake_folder}", f"-DCMAKE_CXX_COMPILER={compiler}"]
        run("cmake", "-S", tmp_path, "-B", tmp_path / compiler, *words)
        run("cmake", "--build", tmp_path / compiler)
        said = run("env", "-i", tmp_path / compiler / "guide", cwd=tmp_path)
        assert said.splitlines() == ["Backend: cpp", "The default is cpp"]


@pytest.mark.sample
def test_the_commands_of_the_decode_package(this_interpreter, dist):
    fresh = this_interpreter.environment("commands")
    folders = [dist, this_interpreter.wheelhouse]
    fresh.install("tensor-ops[cpp]", "tensor-ops-decode", folders=folders)
    assert fresh.pip("check").strip() == "No broken requirements found."
    assert json.loads(fresh.command("doctor", "--json", "--require=cpp"))["problems"] == []
    commands = project("tensor-ops-decode")["project"]["entry-points"]["tensor_ops.commands"]
    for words in (name.split(".") for name in commands):
        usage = f"usage: tensor-ops {' '.join(words)} "
        assert fresh.command(*words, "--help").startswith(usage)
    path, ran = fresh.python("-c", DECODE).splitlines()
    assert path.startswith(str(fresh.place))
    assert ran == "cpp 1"


def test_without_a_backend_numpy_runs(this_interpreter, dist):
    fresh = this_interpreter.environment("plain")
    fresh.install("tensor-ops", folders=[dist, this_interpreter.wheelhouse])
    assert fresh.python("-c", FIRST_STEPS).strip() == "python"


def test_devices_and_settings_need_no_pytorch(this_interpreter, dist):
    fresh = this_interpreter.environment("devices")
    fresh.install("tensor-ops[devices]", folders=[dist, this_interpreter.wheelhouse])
    assert fresh.python("-c", WITHOUT_PYTORCH).split() == ["CPUExecutionProvider", "auto"]


def test_the_integration_in_pytorch(this_interpreter, dist):
    house = this_interpreter.folder / "torch"
    this_interpreter.pip("download", "--only-binary=:all:", "-d", house, "torch>=2.6")
    fresh = this_interpreter.environment("pytorch")
    fresh.install("tensor-ops[torch]", folders=[dist, this_interpreter.wheelhouse, house])
    assert fresh.python("-c", IN_PYTORCH).split() == [str(fresh.place), "0.73106", "0.92767"]

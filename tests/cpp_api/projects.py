"""CMake projects that use the package: configured, built and run."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "packages/tensor-ops-cpp"
EXAMPLES = ROOT / "examples"
# The C compiler of each C++ compiler.
C_COMPILERS = {"g++": "gcc", "clang++": "clang"}
# The build that compiles soonest: one level, no decode programs, not optimized.
QUICK = {"TENSOR_OPS_ONE_LEVEL": "ON", "TENSOR_OPS_DECODE": "OFF", "CMAKE_BUILD_TYPE": "Debug"}
# No other program of the process's environment, such as a virtual environment's Python.
PATH = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
NORMALISED = "on cpp: 0.848528 1.13137 -0.543928 1.30543\n"
SOFTMAX = "softmax of 0 1 2 is 0.090031 0.244728 0.665241\n"


def run(*command, status=0, **variables):
    """Run a program that ends with the status; return what it printed."""
    done = subprocess.run(
        list(map(str, command)),
        env=PATH | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


def configure(source, build, settings=(), compiler="g++", status=0):
    """Configure a project; return what CMake says, without its line breaks."""
    words = [f"-D{name}={value}" for name, value in dict(settings).items()]
    words += [f"-DCMAKE_CXX_COMPILER={compiler}"]
    words += [f"-DCMAKE_C_COMPILER={C_COMPILERS.get(compiler, 'cc')}"]
    words += ["-G", "Ninja"] if shutil.which("ninja") else []
    said = run("cmake", "-S", source, "-B", build, *words, status=status)
    return " ".join(said.split())


def build(folder):
    return run("cmake", "--build", folder, "--parallel", "2")


def run_examples(folder):
    """Run the programs of examples/cpp; return what the one on the C interface printed."""
    home = str(folder / "home")
    assert run(folder / "normalise", HOME=home) == NORMALISED
    listed = run(folder / "list_ops", HOME=home)
    assert listed.endswith(SOFTMAX)
    return listed

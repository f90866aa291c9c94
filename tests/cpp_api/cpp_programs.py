"""Where the programs are, and what compiles them."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
OPS = ROOT / "packages/tensor-ops-cpp/native/ops"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
COMPILERS = [os.environ.get("CXX", "g++"), *filter(shutil.which, ["clang++"])]


def make_ops_header(header, declarations=OPS):
    """Run the script that makes ops.h, and return what came of it."""
    script = ROOT / "native/cmake/ops_header.cmake"
    defined = [f"-DDECLARATIONS={declarations}", f"-DHEADER={header}"]
    command = ["cmake", *defined, "-P", str(script)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_compiler(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""

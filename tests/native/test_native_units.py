"""Parts of the native code by themselves: small programs, compiled in seconds without the library.

A program is `units/<name>.cpp`. It ends with another status than 0, and says why, where a check of
it fails. `SOURCES` has what it is compiled with beside headers.
"""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNITS = Path(__file__).with_name("units")
SHARED = "native/decode"
RANKS = f"{SHARED}/ranks"
EXECUTOR = "packages/tensor-ops-cpp/native/decode/executor"
SOURCES = {
    "draw": [f"{SHARED}/serving/draw.cpp"],
    "json_fields": [f"{SHARED}/program/json_fields.cpp"],
    "mapped_file": [f"{SHARED}/files/mapped_file.cpp"],
    "operand_axes": [],
    "scratch": [],
    "tile_claims": [],
    "value_plan": [f"{SHARED}/program/value_plan.cpp"],
    "window_exchange": [
        f"{RANKS}/{name}.cpp" for name in ("exchange", "callback_exchange", "window_exchange")
    ],
    "workers_in_use": [f"{EXECUTOR}/workers_in_use.cpp"],
}
OPTIONS = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GLIBCXX_ASSERTIONS", "-pthread"]
INCLUDED = ["-Inative", "-Inative/include", "-Ipackages/tensor-ops-cpp/native"]


def test_every_program_runs():
    assert sorted(path.stem for path in UNITS.glob("*.cpp")) == sorted(SOURCES)


@pytest.mark.sampled(2, "name")
@pytest.mark.parametrize("name", SOURCES)
def test_checks_hold(name, tmp_path):
    compiler, program = os.environ.get("CXX", "g++"), tmp_path / name
    sources = [UNITS / f"{name}.cpp", *SOURCES[name]]
    command = [compiler, *OPTIONS, *INCLUDED, *sources, "-o", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""Parts of the native code by themselves: small programs, compiled in seconds without the library.

A program is `units/<name>.cpp`. It ends with another status than 0, and says why, where a check of
it fails. `SOURCES` has what it is compiled with beside headers. With --system, programs are those
of another system (tests/platforms).
"""

import os
import re
from pathlib import Path

import pytest

from other_system import System, read_system

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
# As a part of the library, whose declarations another program would import on Windows.
OPTIONS = ["-O1", "-D_GLIBCXX_ASSERTIONS", "-DTENSOR_OPS_BUILDS_LIBRARY", "-pthread"]
INCLUDED = [f"-I{ROOT}/native", f"-I{ROOT}/packages/tensor-ops-cpp/native"]
POSIX = re.compile("#include <(sys/[a-z]*|unistd).h>")


@pytest.fixture(scope="module")
def system(request):
    """This machine, or the system that the tests are about."""
    given = request.config.getoption("--system")
    return read_system(given) if given else System("here", [], [os.environ.get("CXX", "g++")])


def test_every_program_runs():
    assert sorted(path.stem for path in UNITS.glob("*.cpp")) == sorted(SOURCES)


@pytest.mark.sampled(2, "name")
@pytest.mark.parametrize("name", SOURCES)
def test_checks_hold(name, system, tmp_path):
    source = UNITS / f"{name}.cpp"
    if system.is_windows and POSIX.search(source.read_text(encoding="utf-8")):
        pytest.skip("its checks are written for POSIX")
    program = tmp_path / (f"{name}.exe" if system.is_windows else name)
    others = [ROOT / path for path in SOURCES[name]]
    system.compile(source, program, *OPTIONS, *INCLUDED, *others)
    system.run(program)

"""One package is upgraded, another is not: what no longer fits says so, the rest goes on."""

import json
import re
import shutil
import sys

import pytest

from interpreters import ROOT, build_wheel, run
from release_check import find_version, version_of

FORCED = {"TENSOR_OPS_FORCE_BACKEND": "cpp"}
SILU = "import numpy as np, tensor_ops; print(tensor_ops.silu(np.ones(1, np.float32)))"
CORE = r"tensor-ops-cpp has API_VERSION 1 and this tensor-ops wants 2; "
BACKEND = r"tensor-ops-cpp has API_VERSION 2 and this tensor-ops wants 1; "
HOW = "install versions of both that go together"


def later(package):
    """Return a later version that other packages of ours take as they take today's."""
    return f"{version_of(ROOT / 'packages' / package).rpartition('.')[0]}.99"


@pytest.fixture
def environment(this_interpreter, dist, tmp_path):
    """An environment in which the releases of today are installed."""
    fresh = this_interpreter.environment(tmp_path.name)
    fresh.install("tensor-ops[cpp]", folders=[dist, this_interpreter.wheelhouse])
    assert fresh.python("-c", SILU, variables=FORCED).strip() == "[0.7310586]"
    return fresh


@pytest.fixture
def next_core(tmp_path):
    """A later tensor-ops whose contract with backends is another."""
    tree = tmp_path / "tensor-ops"
    shutil.copytree(ROOT / "packages" / "tensor-ops", tree)
    place, match = find_version(tree)
    change(place, re.escape(match[0]), f'__version__ = "{later("tensor-ops")}"')
    change(
        tree / "src" / "tensor_ops" / "backends" / "contract.py",
        "(?m)^API_VERSION = 1$",
        "API_VERSION = 2",
    )
    build_wheel(tree, tmp_path / "next")
    return tmp_path / "next"


@pytest.fixture
def next_backend(wheel, tmp_path):
    """A later tensor-ops-cpp with another contract: today's wheel with two numbers changed."""
    run(sys.executable, "-m", "wheel", "unpack", "--dest", tmp_path, wheel("tensor-ops-cpp"))
    version = later("tensor-ops-cpp")
    (tree,) = tmp_path.glob("tensor_ops_cpp-*")
    (information,) = tree.glob("*.dist-info")
    change(tree / "tensor_ops_cpp" / "_backend.py", "(?m)^API_VERSION = 1$", "API_VERSION = 2")
    change(information / "METADATA", "(?m)^Version: .*", f"Version: {version}")
    information.rename(tree / f"tensor_ops_cpp-{version}.dist-info")
    (tmp_path / "next").mkdir()
    run(sys.executable, "-m", "wheel", "pack", "--dest-dir", tmp_path / "next", tree)
    return tmp_path / "next"


def change(path, pattern, replacement):
    text, count = re.subn(pattern, replacement, path.read_text(encoding="utf-8"))
    assert count == 1, path
    path.write_text(text, encoding="utf-8")


def assert_refused(environment, message):
    """The backend is refused by name, and NumPy runs instead unless it was forced."""
    doctor = json.loads(environment.command("doctor", "--json"))
    (cpp,) = (each for each in doctor["backends"] if each["name"] == "cpp")
    assert cpp["available"] is False
    assert cpp["reason"] == message + HOW
    assert message + HOW in environment.command("doctor", "--require=cpp", status=1)
    free = environment.python("-W", "default", "-c", SILU)
    assert "[0.7310586]" in free
    assert message + HOW in free
    forced = environment.python("-c", SILU, variables=FORCED, status=1)
    assert "BackendUnavailableError" in forced
    assert message + HOW in forced


@pytest.mark.sample
def test_a_later_core_refuses_an_older_backend(environment, next_core, this_interpreter):
    environment.install("--upgrade", "tensor-ops", folders=[next_core, this_interpreter.wheelhouse])
    assert_refused(environment, CORE)


@pytest.mark.sample
def test_an_older_core_refuses_a_later_backend(environment, next_backend, this_interpreter):
    folders = [next_backend, this_interpreter.wheelhouse]
    environment.install("--upgrade", "tensor-ops-cpp", folders=folders)
    assert_refused(environment, BACKEND)


def test_what_was_refused_comes_back(environment, next_backend, this_interpreter, dist):
    environment.install("--upgrade", "tensor-ops-cpp", folders=[next_backend])
    earlier = f"tensor-ops-cpp<{later('tensor-ops-cpp')}"
    environment.install(earlier, folders=[dist, this_interpreter.wheelhouse])
    assert environment.python("-c", SILU, variables=FORCED).strip() == "[0.7310586]"

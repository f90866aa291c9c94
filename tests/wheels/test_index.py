"""A rehearsal of a release: files are uploaded to an index, and installed from it word for word.

The index runs on this machine, with wheels of everybody else beside ours; pip sees no other.
"""

import contextlib
import json
import re
import shlex
import socket
import subprocess
import sys
import time
import tomllib

import pytest

from interpreters import HERE, PACKAGES, ROOT, project, run, tag_of
from release_check import version_of

pytestmark = pytest.mark.rehearsal

EXTRAS = ["", *project("tensor-ops")["project"]["optional-dependencies"]]
# The commands of the page on releases, by their extra.
COMMANDS = {
    extra or "": command
    for command, extra in re.findall(
        r"^(pip install (?:tensor-ops|'tensor-ops\[(\w+)\]'))$",
        (ROOT / "docs" / "releases.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
}
# What can be done then, and what it prints.
NUMBERS = """
import numpy as np
import tensor_ops

print(tensor_ops.silu(np.ones(1, dtype=np.float32))[0], tensor_ops.get_backend())
"""
WHAT = {
    "": (NUMBERS, "0.7310586 python"),
    "cpp": (NUMBERS, "0.7310586 cpp"),
    "opencl": ("import tensor_ops_opencl as t; print(len(t.ops) > 8)", "True"),
    # With a GPU it is available, without one it is there and says what is missing.
    "cuda": ("import tensor_ops_cuda as t; print(t.probe().keys() >= {'reason'})", "True"),
    "torch": ("import tensor_ops_torch as t, torch; print(t.silu(torch.zeros(1)))", "tensor([0.])"),
    "decode": (
        "import tensor_ops as t; print(t.PersistentKernel.__module__[:17])",
        "tensor_ops_decode",
    ),
    "devices": ("import tensor_ops_devices as t; print(t.BackendError.__name__)", "BackendError"),
    "bench": ("import matplotlib; print(matplotlib.__name__)", "matplotlib"),
    "all": (f"import tensor_ops_cpp, tensor_ops_opencl\n{NUMBERS}", "0.7310586 cpp"),
}
FREE = "Apache;BSD;MIT;MPL-2.0;PSF-2.0;Python Software Foundation"


@pytest.fixture(scope="module")
def files(dist):
    """The files of the release: all but wheels for other Pythons."""
    ours = {"py3", tag_of(HERE)}
    wheels = [path for path in dist.glob("*.whl") if path.name.split("-")[2] in ours]
    return [*wheels, *dist.glob("*.tar.gz")]


@pytest.fixture(scope="module")
def index(dist, files, this_interpreter, tmp_path_factory):
    """The address of an index to which the files were uploaded as to PyPI."""
    others = _wheels_of_others(dist, this_interpreter)
    ours = tmp_path_factory.mktemp("ours")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-i", "127.0.0.1", "-p", str(port), "-P", ".", "-a", ".", "--disable-fallback"]
    command = [sys.executable, "-m", "pypiserver", "run", *words, ours, others]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        address = f"http://127.0.0.1:{port}/"
        anybody = ["--repository-url", address, "-u", "anybody", "-p", "nothing"]
        run(sys.executable, "-m", "twine", "upload", "--non-interactive", *anybody, *files)
        assert {path.name for path in ours.iterdir()} == {path.name for path in files}
        yield f"{address}simple/"
    finally:
        server.terminate()
        server.wait()


def _wheels_of_others(dist, interpreter):
    """Download what our packages require, with the PyTorch that has no gigabytes of CUDA."""
    version = version_of(ROOT / "packages" / "tensor-ops")
    everything = f"tensor-ops[{','.join(filter(None, EXTRAS))}]=={version}"
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    peers = groups["dependency-groups"]["peers"]
    pytorch = next(each for each in peers if each.startswith("torch=="))
    house = interpreter.folder / "others"
    words = ["--only-binary=:all:", "--find-links", dist, "-d", house]
    interpreter.pip("download", *words, everything, pytorch)
    for path in house.glob("tensor_ops*"):
        path.unlink()
    return house


def _wait_for(port):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise AssertionError("the index has not started")


def test_the_index_takes_the_tags_of_all_wheels(files):
    """PyPI refuses a wheel for any Linux, and one release has at least sdist and wheel of each."""
    assert not [path.name for path in files if "-linux_" in path.name]
    for package in PACKAGES:
        stem = package.replace("-", "_")
        kinds = [path.suffix for path in files if path.name.partition("-")[0] == stem]
        assert sorted(kinds) == [".gz", ".whl"], package


@pytest.fixture
def environment(index, this_interpreter, tmp_path):
    """A function that runs commands in an empty environment, where pip sees the index only."""
    place = tmp_path / "environment"
    run(this_interpreter.executable, "-m", "venv", place)
    only = {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": index}
    variables = only | {"PATH": f"{place / 'bin'}:/usr/bin:/bin"}
    return lambda command: run("bash", "-euc", command, variables=variables, cwd=tmp_path).strip()


@pytest.mark.parametrize("extra", EXTRAS)
def test_commands_of_the_page_install(extra, environment, tmp_path):
    environment(COMMANDS[extra])
    code, expected = WHAT[extra]
    assert environment(f"python -c {shlex.quote(code)}") == expected
    assert environment("pip check") == "No broken requirements found."
    allowed = ["--partial-match", f"--allow-only={FREE}"]
    python = f"--python={tmp_path / 'environment' / 'bin' / 'python'}"
    run(sys.executable, "-m", "piplicenses", python, "--from=mixed", *allowed)


def test_doctor_says_how_to_be_faster(environment):
    environment(COMMANDS[""])
    advice = json.loads(environment("tensor-ops doctor --json"))["advice"]
    assert advice.startswith("NumPy computes; ")
    command = advice[advice.index("pip install") :]
    assert command == COMMANDS["cpp"]
    environment(command)
    assert json.loads(environment("tensor-ops doctor --json"))["advice"] is None
    assert environment(f"python -c {shlex.quote(NUMBERS)}") == WHAT["cpp"][1]

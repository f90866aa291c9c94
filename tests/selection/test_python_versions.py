"""Two packages hold the files of argument kinds: both work in one program, on any Python.

Older releases of Python return, for an annotation equal to one that they have made, that one.
"""

import functools
import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytest.importorskip("tensor_ops_opencl")

ORDERS = [("tensor_ops", "tensor_ops_opencl"), ("tensor_ops_opencl", "tensor_ops")]
REMEMBER_ANNOTATIONS = """
import functools, typing
original = typing.Annotated

class Remembered:
    @functools.cache
    def __getitem__(self, arguments):
        return original[arguments]

typing.Annotated = Remembered()
"""
CALL = """
import numpy as np
import tensor_ops
x = np.ones((2, 8), np.float32)
tensor_ops.rms_norm(x, x[0])
print(tensor_ops.explain("rms_norm", x, x[0]))
tensor_ops.rms_norm(x, x[0], backend="python")
"""
IMPORT_ALL = """
import importlib, pkgutil
for name in ("tensor_ops", "tensor_ops_opencl", "tensor_ops_decode"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""


def packages():
    """Return the folders in which this Python finds what is installed for it."""
    return {sysconfig.get_path(each) for each in ("purelib", "platlib")}


@functools.cache
def other_releases():
    """Return the Pythons of this machine that can use the same packages, of other releases."""
    series = "{}.{}".format(*sys.version_info)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    usual = [Path(f"{folder}/python{series}") for folder in ("/usr/bin", "/usr/local/bin")]
    found = {}
    for path in [*usual, *pyenv.glob(f"versions/{series}.*/bin/python")]:
        if path.exists():
            release = run(path, "import platform; print(platform.python_version())").strip()
            found[release] = path
    found.pop(platform.python_version(), None)
    return list(found.values())


def run(executable, *code):
    # -S keeps out what another Python has installed for itself; -I what this environment says.
    lines = ["import site", *(f"site.addsitedir({path!r})" for path in sorted(packages())), *code]
    done = subprocess.run(
        [executable, "-I", "-S", "-W", "error", "-c", "\n".join(lines)],
        env={k: v for k, v in os.environ.items() if not k.startswith("TENSOR_OPS_")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_annotations_that_are_remembered(order):
    run(sys.executable, REMEMBER_ANNOTATIONS, *(f"import {name}" for name in order), CALL)


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_other_releases_of_this_python(order):
    if not other_releases():
        pytest.skip(f"this machine has no release of Python but {platform.python_version()}")
    for executable in other_releases():
        run(executable, *(f"import {name}" for name in order), CALL, IMPORT_ALL)

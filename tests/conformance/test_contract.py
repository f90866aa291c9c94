"""Packages of backends besides right ops: names, docstrings, facts, plain results."""

import inspect
import pickle
import subprocess
import sys
from importlib.metadata import entry_points, version

import numpy as np
import pytest

from tensor_ops.op import OPS

INFO_KEYS = [
    *("name", "display_name", "available", "reason", "version", "device_name", "device_count"),
    *("compute_capability", "compute_units", "max_memory", "max_shared_memory", "dtypes", "ops"),
]


def test_signature_is_that_of_tensor_ops_without_a_backend(op, package):
    instead = "num_threads=None" if name_of(package) == "cpp" else ""
    expected = str(op.signature).replace("backend=None", instead).replace(", )", ")")
    assert str(inspect.signature(getattr(package, op.name))) == expected


def test_docstring_has_the_sections_of_numpydoc(op, package):
    function = getattr(package, op.name)
    doc = inspect.getdoc(function)
    for title in ("Parameters", "Returns", "Raises", "Notes"):
        assert f"\n{title}\n{'-' * len(title)}\n" in doc
    described = [line.partition(" : ")[0] for line in doc.splitlines() if " : " in line]
    names = {name for line in described for name in line.split(", ")}
    assert names >= inspect.signature(function).parameters.keys()


def test_ops_can_be_pickled(op, package):
    function = getattr(package, op.name)
    assert pickle.loads(pickle.dumps(function)) is function


def test_entry_point_and_version(package):
    (entry,) = entry_points(group="tensor_ops.backends", name=name_of(package))
    assert entry.load() is package
    assert package.API_VERSION == 1
    assert package.__version__ == version(package.__name__.replace("_", "-"))


@pytest.mark.usefixtures("device")
def test_info(package):
    info = package.info()
    assert list(info) == INFO_KEYS
    assert (info["name"], info["version"]) == (name_of(package), package.__version__)
    assert info["compute_units"] >= 1
    assert info["max_memory"] > 2**20
    assert set(info["dtypes"]) >= {"float32", "float16", "bfloat16"}
    assert info["ops"] == sorted(info["ops"])
    assert set(info["ops"]) <= set(OPS)
    assert all(OPS[name].derivative_of for name in set(OPS) - set(info["ops"]))


@pytest.mark.usefixtures("device")
def test_supports_what_it_has(op, package):
    for dtype in package.info()["dtypes"]:
        assert package.supports(op.name, dtype, "cpu") is None


@pytest.mark.parametrize(
    "question",
    [("attention", "float32", "cpu"), ("silu", "int8", "cpu"), ("silu", "float32", "other:0")],
)
def test_supports_gives_a_reason(question, package):
    assert isinstance(package.supports(*question), str)


@pytest.mark.usefixtures("device")
def test_import_and_use_need_no_ml_dtypes(package):
    code = (
        "import sys; sys.modules['ml_dtypes'] = None; sys.modules['nanobind'] = None\n"
        f"import numpy as np, {package.__name__} as t\n"
        "assert t.silu(np.zeros(3, np.float32)).tolist() == [0, 0, 0]\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("rows", [4, 400])
def test_result_is_a_plain_contiguous_array(rows, package):
    class Sub(np.ndarray):
        pass

    x = np.ones((rows, 60), np.float32).T.view(Sub)
    y = package.silu(x)
    assert type(y) is np.ndarray
    assert y.flags.c_contiguous
    assert y.flags.writeable
    assert y.flags.aligned
    assert (y.shape, y.dtype) == (x.shape, x.dtype)


def name_of(package):
    return package.__name__.removeprefix("tensor_ops_")

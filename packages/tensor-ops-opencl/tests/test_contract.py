"""The module as a backend, and as a module."""

import doctest
import inspect
import pickle
from importlib.metadata import entry_points, version
from pathlib import Path

import numpy as np
import pytest

import tensor_ops.ops
import tensor_ops_opencl

INFO_KEYS = [
    "name",
    "display_name",
    "available",
    "reason",
    "version",
    "device_name",
    "device_count",
    "compute_capability",
    "compute_units",
    "max_memory",
    "max_shared_memory",
    "dtypes",
    "ops",
]
OPS = tensor_ops_opencl.ops


@pytest.mark.parametrize("op", OPS)
def test_signature_is_that_of_tensor_ops_without_a_backend(op):
    dispatched = str(tensor_ops.ops.OPS[op].signature)
    assert str(inspect.signature(OPS[op])) == dispatched.replace(", backend=None", "")


def test_every_op_is_two_files_of_one_stem():
    folder = Path(inspect.getfile(tensor_ops_opencl)).parent / "ops"
    stems = [{path.stem for path in folder.glob(f"*.{end}")} for end in ("py", "cl")]
    assert stems[0] - {"__init__"} == stems[1] == set(OPS)


@pytest.mark.parametrize("op", OPS)
def test_docstring_has_the_sections_of_numpydoc(op):
    doc = inspect.getdoc(OPS[op])
    for title in ("Parameters", "Returns", "Raises", "Notes", "Examples"):
        assert f"\n{title}\n{'-' * len(title)}\n" in doc
    for name in inspect.signature(OPS[op]).parameters:
        assert f"{name} : " in doc or f"{name}, " in doc or f", {name} : " in doc


@pytest.mark.parametrize(
    "name",
    [*OPS, "devices", "probe", "get_opencl_info", "info", "supports", "driver_version", "Device"],
)
def test_examples_run(name, device):
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for test in finder.find(getattr(tensor_ops_opencl, name), name, globs={}):
        assert runner.run(test).failed == 0
    assert runner.tries or name not in OPS


def test_entry_point():
    (entry,) = entry_points(group="tensor_ops.backends", name="opencl")
    assert entry.load() is tensor_ops_opencl


def test_probe(device):
    assert tensor_ops_opencl.API_VERSION == 1
    assert tensor_ops_opencl.probe() == {
        "available": True,
        "reason": None,
        "devices": ["cpu", f"opencl:{device.index}"],
        "kind": device.kind,
        "wrong_setting": None,
    }


def test_info(device):
    info = tensor_ops_opencl.info()
    assert list(info) == INFO_KEYS
    assert info["name"] == "opencl"
    assert info["version"] == version("tensor-ops-opencl") == tensor_ops_opencl.__version__
    assert info["device_name"] == str(device)
    assert 1 <= info["device_count"] <= len(tensor_ops_opencl.devices())
    assert info["compute_capability"] == 0
    assert info["compute_units"] >= 1
    assert info["max_memory"] > 2**20
    assert set(info["dtypes"]) >= {"float32", "float16", "bfloat16"}
    assert info["ops"] == sorted(OPS)


def test_numbers_of_no_device_are_0(monkeypatch):
    def no_devices():
        raise tensor_ops_opencl.DeviceError("no device here")

    monkeypatch.setattr("tensor_ops_opencl.discovery.devices", no_devices)
    info = tensor_ops_opencl.info()
    assert info["reason"] == "no device here"
    assert info["device_name"] is None
    numbers = INFO_KEYS[INFO_KEYS.index("device_count") : INFO_KEYS.index("dtypes")]
    assert {name: info[name] for name in numbers} == dict.fromkeys(numbers, 0)


@pytest.mark.parametrize("where", ["cpu", "opencl", "opencl:0"])
@pytest.mark.parametrize("op", OPS)
def test_supports_what_it_has(op, where, device):
    for name in tensor_ops_opencl.info()["dtypes"]:
        assert tensor_ops_opencl.supports(op, name, where) is None


@pytest.mark.parametrize(
    "question",
    [("attention", "float32", "cpu"), ("silu", "int8", "cpu"), ("silu", "float32", "cuda:0")],
)
def test_supports_gives_a_reason(question):
    assert isinstance(tensor_ops_opencl.supports(*question), str)


def test_opencl_info_prints_every_device(device):
    info = tensor_ops_opencl.get_opencl_info()
    assert isinstance(info, dict)
    assert info["device"] == f"{device.index} = {device}"
    listed = [each["index"] for platform in info["platforms"] for each in platform["devices"]]
    assert listed == [each.index for each in tensor_ops_opencl.devices()]
    for each in tensor_ops_opencl.devices():
        assert f"{each.index}: {each.name} ({each.kind}" in str(info)


@pytest.mark.parametrize("op", OPS)
def test_ops_can_be_pickled(op):
    assert pickle.loads(pickle.dumps(OPS[op])) is OPS[op]


def test_import_looks_for_nothing(python):
    code = "import sys, tensor_ops_opencl; print('pyopencl' in sys.modules)"
    assert python(code).strip() == "False"


def test_import_and_use_need_no_ml_dtypes(python, device):
    code = (
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "import numpy as np, tensor_ops_opencl as t\n"
        "assert t.silu(np.zeros(3, np.float32)).tolist() == [0, 0, 0]\n"
    )
    assert python(code) == ""


def test_result_is_a_plain_contiguous_array(device):
    class Sub(np.ndarray):
        pass

    x = np.ones((40, 60), np.float32).T.view(Sub)
    y = tensor_ops_opencl.silu(x)
    assert type(y) is np.ndarray
    assert y.flags.c_contiguous
    assert y.flags.writeable
    assert y.shape == x.shape

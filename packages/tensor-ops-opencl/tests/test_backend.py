"""The OpenCL backend's own facts, besides what tests/conformance asks of all backends."""

import doctest
import inspect
from pathlib import Path

import pytest

import tensor_ops_opencl

OPS = tensor_ops_opencl.ops


def test_every_op_is_two_files_of_one_stem():
    folder = Path(inspect.getfile(tensor_ops_opencl)).parent / "ops"
    stems = [{path.stem for path in folder.glob(f"*.{end}")} for end in ("py", "cl")]
    assert stems[0] - {"__init__"} == stems[1] == set(OPS)


@pytest.mark.parametrize(
    "name",
    [*OPS, "devices", "probe", "get_opencl_info", "info", "supports", "driver_version", "Device"],
)
def test_examples_run(name, device):
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for test in finder.find(getattr(tensor_ops_opencl, name), name, globs={}):
        assert runner.run(test).failed == 0
    assert runner.tries or name not in OPS


def test_probe(device):
    assert tensor_ops_opencl.probe() == {
        "available": True,
        "reason": None,
        "devices": ["cpu", f"opencl:{device.index}"],
        "kind": device.kind,
        "wrong_setting": None,
    }


def test_info(device):
    info = tensor_ops_opencl.info()
    assert info["device_name"] == str(device)
    assert 1 <= info["device_count"] <= len(tensor_ops_opencl.devices())
    assert info["compute_capability"] == 0


def test_numbers_of_no_device_are_0(monkeypatch):
    def no_devices():
        raise tensor_ops_opencl.DeviceError("no device here")

    monkeypatch.setattr("tensor_ops_opencl.discovery.devices", no_devices)
    info = tensor_ops_opencl.info()
    assert info["reason"] == "no device here"
    assert info["device_name"] is None
    names = list(info)
    numbers = names[names.index("device_count") : names.index("dtypes")]
    assert {name: info[name] for name in numbers} == dict.fromkeys(numbers, 0)


@pytest.mark.parametrize("where", ["opencl", "opencl:0"])
@pytest.mark.parametrize("op", OPS)
def test_supports_what_it_has(op, where, device):
    for name in tensor_ops_opencl.info()["dtypes"]:
        assert tensor_ops_opencl.supports(op, name, where) is None


def test_opencl_info_prints_every_device(device):
    info = tensor_ops_opencl.get_opencl_info()
    assert isinstance(info, dict)
    assert info["device"] == f"{device.index} = {device}"
    listed = [each["index"] for platform in info["platforms"] for each in platform["devices"]]
    assert listed == [each.index for each in tensor_ops_opencl.devices()]
    for each in tensor_ops_opencl.devices():
        assert f"{each.index}: {each.name} ({each.kind}" in str(info)


def test_import_looks_for_nothing(python):
    code = "import sys, tensor_ops_opencl; print('pyopencl' in sys.modules)"
    assert python(code).strip() == "False"

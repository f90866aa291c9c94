"""The choice of a device."""

import dataclasses

import pytest

from tensor_ops_opencl import DeviceError, compiler, devices, get_opencl_info
from tensor_ops_opencl.discovery import VARIABLE, chosen


@pytest.fixture
def machine(device, monkeypatch):
    """Four devices on two platforms, none of which can be used."""

    def like(index, name, platform, kind, units=8, clock=1000):
        changes = {"index": index, "name": name, "platform": platform, "kind": kind}
        return dataclasses.replace(device, **changes, compute_units=units, clock=clock)

    found = [
        like("0:0", "Slow CPU", "Portable", "cpu", units=4),
        like("0:1", "Fast CPU", "Portable", "cpu", units=64),
        like("1:0", "Radeon Small", "AMD Platform", "gpu", units=2),
        like("1:1", "Radeon Large", "AMD Platform", "gpu", units=60),
    ]
    monkeypatch.setattr("tensor_ops_opencl.discovery.devices", lambda: found)
    monkeypatch.setattr("tensor_ops_opencl.compiler.problem_with", lambda device: None)
    return found


@pytest.fixture
def unknown(machine, monkeypatch):
    """Names of devices whose compilers do not know them."""
    names = set()
    said = "error: unknown target CPU 'generic'"
    problems = lambda device: said if device.name in names else None  # noqa: E731
    monkeypatch.setattr("tensor_ops_opencl.compiler.problem_with", problems)
    return names


def test_the_strongest_gpu_goes_first(machine):
    assert chosen("").name == "Radeon Large"


def test_an_accelerator_goes_before_a_cpu(machine):
    machine[2:] = [dataclasses.replace(machine[2], name="FPGA", kind="accelerator", index="1:0")]
    assert chosen("").name == "FPGA"


def test_the_fastest_cpu_where_there_is_no_other(machine):
    del machine[2:]
    assert chosen("").name == "Fast CPU"


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        ("0:0", "0:0"),
        ("1:1", "1:1"),
        ("slow", "0:0"),
        ("Radeon Large", "1:1"),
        ("amd:large", "1:1"),
        ("portable:1", "0:1"),
        ("0:fast", "0:1"),
        (" 1 : 0 ", "1:0"),
    ],
)
def test_by_index_and_by_name(machine, wanted, index):
    assert chosen(wanted).index == index


@pytest.mark.parametrize("wanted", ["2:0", "0:7", "geforce", "nvidia:0", ":nothing"])
def test_what_fits_none_lists_all(machine, wanted):
    with pytest.raises(DeviceError) as caught:
        chosen(wanted)
    for text in (VARIABLE, repr(wanted), "0:0 = Slow CPU (Portable)", "1:1 = Radeon Large"):
        assert text in str(caught.value)


@pytest.mark.parametrize("wanted", ["radeon", "0", "cpu", "amd:radeon"])
def test_what_fits_several_lists_them(machine, wanted):
    with pytest.raises(DeviceError, match="more than one") as caught:
        chosen(wanted)
    assert "give an index, as in" in str(caught.value)


def test_a_device_whose_compiler_does_not_know_it_is_passed_over(machine, unknown):
    unknown |= {"Radeon Large", "Fast CPU"}
    assert chosen("").name == "Radeon Small"
    del machine[2:]
    assert chosen("").name == "Slow CPU"


def test_no_compiler_works(machine, unknown):
    unknown |= {each.name for each in machine}
    with pytest.raises(DeviceError, match=r"0:1 = Fast CPU.*: error: unknown target CPU") as caught:
        chosen("")
    assert "pip install intel-opencl-rt" in str(caught.value)


def test_the_compiler_of_the_wanted_device_does_not_work(machine, unknown):
    unknown |= {"Fast CPU"}
    with pytest.raises(
        DeviceError, match=r"'fast': Fast CPU .*error: unknown target CPU"
    ) as caught:
        chosen("fast")
    assert "0:0 = Slow CPU" in str(caught.value)


def test_the_compiler_of_a_cpu_is_tried_once(device, monkeypatch):
    assert compiler.problem_with(device) is None
    monkeypatch.setattr("tensor_ops_opencl.compiler._first_error", lambda handle: "tried again")
    assert compiler.problem_with(device) is None


def test_what_a_compiler_says_is_the_problem(device, monkeypatch):
    monkeypatch.setattr("tensor_ops_opencl.compiler._NOTHING", "no kernel")
    monkeypatch.setattr("tensor_ops_opencl.compiler._found", {})
    assert "error:" in compiler.problem_with(dataclasses.replace(device, kind="cpu"))
    assert compiler.problem_with(dataclasses.replace(device, kind="gpu")) is None


def test_the_variable_decides(python, device):
    code = "import tensor_ops_opencl as t; print(t.get_opencl_info()['device'])"
    assert python(code, **{VARIABLE: device.index}).startswith(f"{device.index} = ")
    reason = "import tensor_ops_opencl as t; print(t.probe()['reason'])"
    assert "there are 0:0 = " in python(reason, **{VARIABLE: "no such device"})


def test_the_variable_is_asked_at_every_call(device, monkeypatch):
    import numpy as np

    from tensor_ops_opencl import silu

    silu(np.zeros(3, np.float32))
    monkeypatch.setenv(VARIABLE, "7:7")
    with pytest.raises(DeviceError, match="7:7"):
        silu(np.zeros(3, np.float32))
    assert get_opencl_info()["chosen_by"] == "7:7"


def test_every_device_says_what_it_is(device):
    for each in devices():
        assert each.name
        assert each.kind in {"gpu", "accelerator", "cpu", "custom"}
        assert each.compute_units >= 1
        assert each.facts()["index"] == each.index

"""The choice of a device."""

import dataclasses

import pytest

from tensor_ops_opencl import DeviceError, compiler, devices, get_opencl_info, info, probe
from tensor_ops_opencl.discovery import VARIABLE, chosen


@pytest.fixture
def like(device):
    """A function that describes a device, which cannot be used."""

    def describe(index, name, platform, kind, units=8, clock=1000):
        changes = {"index": index, "name": name, "platform": platform, "kind": kind}
        return dataclasses.replace(device, **changes, compute_units=units, clock=clock)

    return describe


@pytest.fixture
def machine(like, monkeypatch):
    """Four devices on two platforms, none of which can be used."""
    monkeypatch.delenv(VARIABLE, raising=False)
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


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        ("gpu", "1:1"),
        (" CPU ", "0:1"),
        ("portable:cpu", "0:1"),
        ("0:cpu", "0:1"),
        ("amd:gpu", "1:1"),
        ("accelerator", "2:0"),
    ],
)
def test_a_kind_is_its_strongest_device(machine, wanted, index):
    fpga = {"index": "2:0", "platform": "Fields", "kind": "accelerator"}
    machine.append(dataclasses.replace(machine[0], name="A GPU that is none", **fpga))
    assert chosen(wanted).index == index


def test_a_kind_goes_before_a_part_of_a_name(machine):
    machine[0] = dataclasses.replace(machine[0], name="GPU of the CPU", kind="accelerator")
    assert chosen("gpu").name == "Radeon Large"
    assert chosen("cpu").name == "Fast CPU"
    assert chosen("gpu of").name == "GPU of the CPU"


def test_a_kind_is_a_device_whose_compiler_works(machine, unknown):
    unknown |= {"Fast CPU"}
    assert chosen("cpu").name == "Slow CPU"
    unknown |= {"Slow CPU"}
    with pytest.raises(DeviceError, match=r"0:1 = Fast CPU.*: error: unknown target CPU"):
        chosen("cpu")


@pytest.mark.parametrize(
    "wanted", ["2:0", "0:7", "geforce", "nvidia:0", "accelerator", "custom", "amd:cpu"]
)
def test_what_fits_none_lists_all(machine, wanted):
    with pytest.raises(DeviceError, match="fits no device") as caught:
        chosen(wanted)
    for text in (VARIABLE, repr(wanted), "0:0 = Slow CPU (Portable)", "1:1 = Radeon Large"):
        assert text in str(caught.value)


@pytest.mark.parametrize("wanted", ["radeon", "0", "cp", "amd:radeon"])
def test_what_fits_several_lists_them(machine, wanted):
    with pytest.raises(DeviceError, match="more than one") as caught:
        chosen(wanted)
    assert "set it to an index, as in" in str(caught.value)


@pytest.mark.parametrize("wanted", [":", ":gpu", "0:", "amd : ", "0:0:0"])
def test_what_cannot_be_parsed_lists_all(machine, wanted):
    with pytest.raises(DeviceError, match="is neither platform:device nor device") as caught:
        chosen(wanted)
    for text in (VARIABLE, repr(wanted), "0:0 = Slow CPU (Portable), cpu", "gpu, accelerator, cpu"):
        assert text in str(caught.value)


@pytest.mark.parametrize("wanted", ["geforce", "radeon", "0:0:0"])
def test_a_wrong_setting_is_told_from_a_machine_without_a_device(machine, wanted, monkeypatch):
    monkeypatch.setenv(VARIABLE, wanted)
    found = probe()
    assert not found["available"]
    assert found["kind"] is None
    assert found["wrong_setting"] == found["reason"]
    assert f"{VARIABLE}={wanted!r}" in found["reason"]
    machine.clear()
    found = probe()
    assert "have no device" in found["reason"]
    assert found["wrong_setting"] is None


def test_a_device_that_compiles_nothing_is_no_wrong_setting(machine, unknown, monkeypatch):
    unknown |= {"Slow CPU"}
    monkeypatch.setenv(VARIABLE, "slow")
    found = probe()
    assert "compiles no kernel" in found["reason"]
    assert found["wrong_setting"] is None


@pytest.mark.parametrize(("wanted", "kind"), [("", "gpu"), ("0:0", "cpu")])
def test_probe_says_the_kind(machine, monkeypatch, wanted, kind):
    monkeypatch.setenv(VARIABLE, wanted)
    assert probe()["kind"] == kind
    assert probe()["wrong_setting"] is None


@pytest.mark.parametrize("others", [{"units": 64}, {"units": 4, "clock": 0}])
def test_pocl_goes_before_other_drivers_of_a_cpu_and_intels_where_it_is_too_old(
    like, machine, unknown, others
):
    """However many units, and whatever clock and memory, each of them gives the CPU."""
    machine[:] = [
        like("0:0", "EPYC", "Intel(R) OpenCL", "cpu", **others),
        like("1:0", "pthread-EPYC", "Portable Computing Language", "cpu", units=4, clock=2600),
    ]
    assert chosen("").name == "pthread-EPYC"
    machine.reverse()
    assert chosen("").name == "pthread-EPYC"
    unknown |= {"pthread-EPYC"}
    assert chosen("").name == "EPYC"


def test_devices_that_compile_nothing_are_not_counted(machine, unknown):
    assert info()["device_count"] == 4
    unknown |= {"Slow CPU", "Fast CPU"}
    assert info()["device_count"] == 2


def test_a_device_whose_compiler_does_not_know_it_is_passed_over(machine, unknown):
    unknown |= {"Radeon Large", "Fast CPU"}
    assert chosen("").name == "Radeon Small"
    del machine[2:]
    assert chosen("").name == "Slow CPU"


@pytest.mark.parametrize("wanted", ["", "slow"])
def test_no_compiler_works(machine, unknown, monkeypatch, wanted):
    unknown |= {each.name for each in machine}
    monkeypatch.setattr("tensor_ops_opencl.drivers.installed", lambda: None)
    monkeypatch.setattr("tensor_ops_opencl.drivers.HAS_WHEELS_OF_INTEL", True)
    with pytest.raises(DeviceError, match=r"Slow CPU.*: error: unknown target CPU") as caught:
        chosen(wanted)
    assert str(caught.value).endswith(": pip install intel-opencl-rt intel-cmplr-lib-rt")


@pytest.mark.parametrize("has_wheels", [True, False])
def test_no_command_is_given_that_helps_nothing(machine, unknown, monkeypatch, has_wheels):
    """Where Intel's driver is there and too old, or there is none for the processor."""
    unknown |= {each.name for each in machine}
    if has_wheels:
        machine[0] = dataclasses.replace(machine[0], platform="Intel(R) OpenCL")
    monkeypatch.setattr("tensor_ops_opencl.drivers.HAS_WHEELS_OF_INTEL", has_wheels)
    with pytest.raises(DeviceError, match="no OpenCL device compiles a kernel") as caught:
        chosen("")
    assert str(caught.value).endswith("another is needed: install a newer one")


def test_the_compiler_of_the_wanted_device_does_not_work(machine, unknown):
    unknown |= {"Fast CPU"}
    with pytest.raises(
        DeviceError, match=r"'fast': Fast CPU .*error: unknown target CPU"
    ) as caught:
        chosen("fast")
    assert "0:0 = Slow CPU" in str(caught.value)


def test_the_compiler_of_a_cpu_is_tried_once(device, monkeypatch):
    assert compiler.problem_with(device) is None
    monkeypatch.setattr("tensor_ops_opencl.compiler.first_error", lambda handle: "tried again")
    assert compiler.problem_with(device) is None


def test_what_a_compiler_says_is_the_problem(device, monkeypatch):
    monkeypatch.setattr("tensor_ops_opencl.compiler.NOTHING", "no kernel")
    monkeypatch.setattr("tensor_ops_opencl.compiler.found", {})
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
    with pytest.raises(DeviceError, match="7:7") as caught:
        silu(np.zeros(3, np.float32))
    assert probe()["wrong_setting"] == str(caught.value)
    assert get_opencl_info()["chosen_by"] == "7:7"


def test_every_device_says_what_it_is(device):
    for each in devices():
        assert each.name
        assert each.kind in {"gpu", "accelerator", "cpu", "custom"}
        assert each.compute_units >= 1
        assert each.facts()["index"] == each.index

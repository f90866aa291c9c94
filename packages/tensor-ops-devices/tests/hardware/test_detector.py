"""Hardware as it is found, and its order."""

import itertools
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

import tensor_ops
from tensor_ops_devices.backends import create_backend
from tensor_ops_devices.hardware import detector as hardware_detector
from tensor_ops_devices.hardware import xla
from tensor_ops_devices.hardware.config import NVIDIAArchitecture, TPUVersion
from tensor_ops_devices.hardware.detector import HardwareDetector, HardwareType, priority
from tensor_ops_devices.hardware.profile import (
    CAPABILITIES,
    GB,
    HardwareProfile,
    nvidia_architecture,
    nvidia_capabilities,
    tpu_version,
)

A = NVIDIAArchitecture


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [
        ((5, 2), A.MAXWELL),
        ((6, 1), A.PASCAL),
        ((7, 0), A.VOLTA),
        ((7, 2), A.VOLTA),
        ((7, 5), A.TURING),
        ((8, 0), A.AMPERE),
        ((8, 6), A.AMPERE),
        ((8, 7), A.AMPERE),
        ((8, 9), A.ADA),
        ((9, 0), A.HOPPER),
        ((10, 0), A.BLACKWELL),
        ((10, 3), A.BLACKWELL),
        ((11, 0), A.BLACKWELL),
        ((12, 0), A.BLACKWELL),
        ((3, 5), None),
        ((13, 0), None),
    ],
)
def test_architecture_of_a_compute_capability(capability, architecture):
    assert nvidia_architecture(capability, "some GPU") is architecture


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("NVIDIA GB200", A.BLACKWELL),
        ("NVIDIA GeForce RTX 5090", A.BLACKWELL),
        ("NVIDIA H200 NVL", A.HOPPER),
        ("NVIDIA GH200 480GB", A.HOPPER),
        ("NVIDIA L40S", A.ADA),
        ("NVIDIA RTX 6000 Ada Generation", A.ADA),
        ("NVIDIA A100-SXM4-80GB", A.AMPERE),
        ("NVIDIA A10", A.AMPERE),
        ("NVIDIA GeForce RTX 3090", A.AMPERE),
        ("Tesla T4", A.TURING),
        ("Tesla V100-SXM2-16GB", A.VOLTA),
        ("Tesla P100-PCIE-16GB", A.PASCAL),
        ("Tesla M40", A.MAXWELL),
        ("Something new", None),
    ],
)
def test_a_capability_that_is_unknown_is_told_by_the_name(name, architecture):
    assert nvidia_architecture((99, 0), name) is architecture


@pytest.mark.parametrize(
    ("capability", "has", "lacks"),
    [
        ((7, 0), {"float16"}, {"bfloat16", "fp8", "flash_attention_2", "custom_kernels"}),
        ((7, 5), {"custom_kernels"}, {"bfloat16", "fp8"}),
        ((8, 0), {"bfloat16", "flash_attention_2"}, {"fp8", "flash_attention_3"}),
        ((8, 9), {"fp8"}, {"flash_attention_3"}),
        ((9, 0), {"fp8", "flash_attention_3", "flash_attention_2"}, {"xla"}),
        ((10, 0), {"fp8"}, {"flash_attention_3"}),
    ],
)
def test_capabilities_of_a_compute_capability(capability, has, lacks):
    found = nvidia_capabilities(capability)
    assert has <= found
    assert not lacks & found


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("TPU v2", TPUVersion.V2),
        ("TPU v3", TPUVersion.V3),
        ("TPU v4", TPUVersion.V4),
        ("TPU v5 lite", TPUVersion.V5E),
        ("TPU v5e", TPUVersion.V5E),
        ("TPU v5", TPUVersion.V5P),
        ("TPU v5p", TPUVersion.V5P),
        ("TPU v6 lite", TPUVersion.V6E),
        ("TPU v6e", TPUVersion.V6E),
        ("TPU7x", TPUVersion.V7),
        ("TPU v9", None),
        ("cpu", None),
    ],
)
def test_version_of_what_the_runtime_calls_a_tpu(kind, version):
    assert tpu_version(kind) is version


def nvidia(capability):
    return HardwareProfile(
        HardwareType.NVIDIA,
        "GPU",
        1,
        80.0,
        compute_capability=capability,
        architecture=nvidia_architecture(capability),
        capabilities=nvidia_capabilities(capability),
    )


def other(kind, **facts):
    return HardwareProfile(kind, kind.value, 1, 16.0, **facts)


# Each level of the guide; within one the order is that of the list.
LEVELS = [
    [nvidia((9, 0)), nvidia((10, 0)), nvidia((12, 0))],
    [other(HardwareType.TPU, tpu_version=each) for each in ("v5p", "v6e", "v7")],
    [nvidia((8, 0))],
    [other(HardwareType.TPU, tpu_version=each) for each in ("v4", "v5e", None)],
    [nvidia((8, 9)), nvidia((8, 6)), nvidia((7, 5))],
    [other(HardwareType.TPU, tpu_version=each) for each in ("v2", "v3")],
    [other(HardwareType.AMD)],
    [other(HardwareType.XPU)],
    [other(HardwareType.MPS)],
    [other(HardwareType.CPU)],
]


@pytest.mark.parametrize(("better", "worse"), list(itertools.pairwise(LEVELS)))
def test_priority_is_the_guides(better, worse):
    assert max(map(priority, better)) < min(map(priority, worse))


@pytest.fixture
def machine(monkeypatch):
    """A function that makes a machine of profiles; what is not given is not there."""

    def make(*profiles):
        there = {profile.hardware_type: profile for profile in profiles}
        for kind in HardwareType:
            found = there.get(kind, f"no {kind} here")
            monkeypatch.setitem(hardware_detector.PROBES, kind, lambda found=found: found)
        return HardwareDetector()

    return make


def test_the_best_is_detected_and_the_rest_listed(machine):
    cpu, gpu = other(HardwareType.CPU), nvidia((8, 6))
    tpu = other(HardwareType.TPU, tpu_version=TPUVersion.V5E)
    detector = machine(cpu, gpu, tpu)
    assert detector.detect() is tpu
    assert detector.detect_all() == (tpu, gpu, cpu)
    assert detector.get_optimal_backend() == "tpu"
    assert detector.find("nvidia") is gpu
    assert detector.find("amd") is None
    assert detector.reasons == {each: f"no {each} here" for each in ("amd", "xpu", "mps")}


def test_what_the_work_requires_decides_too(machine):
    cpu = other(HardwareType.CPU, capabilities=frozenset({"float64"}))
    detector = machine(nvidia((8, 6)), cpu)
    assert detector.get_optimal_backend(requires=["bfloat16"]) == "nvidia"
    assert detector.get_optimal_backend("float64") == "nvidia"
    detector = machine(other(HardwareType.MPS, capabilities=frozenset({"float16"})), cpu)
    assert detector.get_optimal_backend() == "mps"
    assert detector.get_optimal_backend(requires=["float64"]) == "cpu"
    with pytest.raises(tensor_ops.BackendError, match=r"fp8: mps lacks fp8.*no nvidia \(no nvidia"):
        detector.get_optimal_backend(requires=["fp8"])
    with pytest.raises(tensor_ops.ConfigError, match="did you mean 'float64'"):
        detector.get_optimal_backend(requires=["float46"])


def test_hardware_is_looked_at_once(machine, monkeypatch):
    detector = machine(other(HardwareType.CPU))
    detector.detect()
    monkeypatch.setattr(hardware_detector, "PROBES", {})
    assert detector.detect().hardware_type is HardwareType.CPU


def test_a_driver_that_breaks_hides_nothing_else(machine, monkeypatch):
    detector = machine(other(HardwareType.CPU))

    def broken():
        raise RuntimeError("driver initialization failed")

    monkeypatch.setitem(hardware_detector.PROBES, HardwareType.NVIDIA, broken)
    assert detector.get_optimal_backend() == "cpu"
    assert detector.reasons["nvidia"] == "RuntimeError: driver initialization failed"


def test_nvidia_is_read_from_the_device(gpu):
    gpu("H100", count=2)
    profile = HardwareDetector().detect()
    assert profile.hardware_type == "nvidia"
    assert profile.device_name == "NVIDIA H100 80GB HBM3"
    assert profile.device_count == 2
    assert profile.total_memory_gb == 80
    assert profile.compute_capability == (9, 0)
    assert profile.architecture is A.HOPPER
    assert profile.compute_units == 100
    assert profile.supports("multi_device")
    assert "compute capability  9.0" in str(profile)


@pytest.mark.parametrize(
    ("built", "capability", "runs"),
    [
        (["sm_80"], (8, 0), True),
        (["sm_80"], (8, 9), True),
        (["sm_86"], (8, 0), False),
        (["sm_80"], (9, 0), False),
        (["sm_90a"], (9, 0), True),
        (["sm_100a"], (10, 3), False),
        (["sm_100"], (10, 3), True),
        (["sm_90", "compute_90"], (12, 0), True),
        (["compute_120"], (9, 0), False),
        (["sm_90"], (7, 5), False),
    ],
)
def test_a_build_without_code_for_the_gpu_cannot_use_it(built, capability, runs, gpu, monkeypatch):
    assert hardware_detector.has_code_for(capability, built) is runs
    gpu("H100")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75"])
    detector = HardwareDetector()
    assert detector.find("nvidia") is None
    assert "no code for NVIDIA H100 80GB HBM3 (sm_90), only sm_75" in detector.reasons["nvidia"]


def test_a_build_with_cuda_and_no_device(gpu, monkeypatch):
    gpu("H100")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "no CUDA device" in HardwareDetector().reasons["nvidia"]


def test_rocm_is_amd(gpu, monkeypatch):
    gpu("H100")
    properties = SimpleNamespace(
        name="AMD Instinct MI300X",
        total_memory=192 * GB,
        multi_processor_count=304,
        gcnArchName="gfx942:sramecc+:xnack-",
    )
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    detector = HardwareDetector()
    profile = detector.detect()
    assert (profile.hardware_type, profile.architecture) == ("amd", "gfx942")
    assert profile.total_memory_gb == 192
    assert "ROCm" in detector.reasons["nvidia"]


def test_xpu_and_mps(monkeypatch):
    properties = SimpleNamespace(
        name="Intel(R) Arc(TM)", total_memory=16 * GB, max_compute_units=448, has_fp64=False
    )
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    monkeypatch.setattr(torch.xpu, "device_count", lambda: 1)
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 12 * GB)
    xpu, mps, cpu = HardwareDetector().detect_all()
    assert (xpu.hardware_type, xpu.device_name) == ("xpu", "Intel(R) Arc(TM)")
    assert not xpu.supports("float64")
    assert (mps.hardware_type, mps.total_memory_gb) == ("mps", 12)
    assert cpu.hardware_type == "cpu"


@pytest.fixture
def torch_xla(monkeypatch, tmp_path):
    """A function that makes a torch_xla that reports a device, and a PCI bus with chips."""

    def make(kind, device_type="TPU", chips=("0x0063",)):
        modules = {
            "torch_xla": {"__version__": "2.9.0", "device": lambda: "xla:0"},
            "torch_xla.core": {},
            "torch_xla.core.xla_model": {
                "xla_device_kind": lambda _: kind,
                "get_memory_info": lambda _: {"bytes_limit": 16 * GB, "bytes_used": 0},
            },
            "torch_xla.runtime": {
                "device_type": lambda: device_type,
                "addressable_runtime_device_count": lambda: 4,
            },
            "torch_xla._internal": {"tpu": SimpleNamespace(num_tpu_workers=lambda: 2)},
        }
        for name, contents in modules.items():
            module = ModuleType(name)
            module.__dict__.update(contents)
            module.__spec__ = SimpleNamespace(name=name)
            monkeypatch.setitem(sys.modules, name, module)
        for name in ("core.xla_model", "runtime"):
            parent, _, child = f"torch_xla.{name}".rpartition(".")
            monkeypatch.setattr(
                sys.modules[parent], child, sys.modules[f"torch_xla.{name}"], raising=False
            )
        monkeypatch.delenv("PJRT_DEVICE", raising=False)
        monkeypatch.setattr(hardware_detector, "PCI", tmp_path)
        for number, chip in enumerate(chips):
            folder = tmp_path / f"0000:00:0{number}.0"
            folder.mkdir()
            (folder / "vendor").write_text("0x1ae0\n")
            (folder / "device").write_text(f"{chip}\n")

    return make


def test_a_tpu_is_read_through_torch_xla(torch_xla):
    torch_xla("TPU v5 lite")
    profile = HardwareDetector().detect()
    assert profile.hardware_type == "tpu"
    assert profile.tpu_version is TPUVersion.V5E
    assert (profile.device_count, profile.host_count) == (4, 2)
    assert profile.total_memory_gb == 16
    assert profile.supports("xla")
    assert not profile.supports("float64")


def test_without_a_chip_torch_xla_is_not_even_imported(torch_xla, monkeypatch):
    torch_xla("TPU v4", chips=("0x0042",))  # Google's network card
    monkeypatch.setattr(hardware_detector, "of_torch_xla", lambda: pytest.fail("imported"))
    assert HardwareDetector().reasons["tpu"] == "no TPU chip is on the PCI bus"


def test_another_device_of_torch_xla_is_no_tpu(torch_xla, monkeypatch):
    torch_xla("TPU v4")
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    assert "PJRT_DEVICE=CPU" in HardwareDetector().reasons["tpu"]


def test_chips_without_torch_xla(torch_xla, monkeypatch):
    torch_xla("TPU v4", chips=("0x005e", "0x005e"))
    monkeypatch.setattr(xla, "is_installed", lambda: False)
    assert (
        "2 TPU chips are there, but torch_xla is not installed"
        in (HardwareDetector().reasons["tpu"])
    )


def test_the_backend_of_the_best_hardware(gpu, machine):
    gpu("A100")
    backend = create_backend()
    assert (backend.name, backend.is_fallback) == ("nvidia", False)
    machine(other(HardwareType.CPU))
    assert create_backend().name == "cpu"


def test_facts_do_not_depend_on_configuration(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TENSOR_OPS_CPP_ISA", "x86-64-v2")
    first = HardwareDetector().find("cpu")
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert HardwareDetector().find("cpu") == first


def test_capabilities_are_spelled_right():
    with pytest.raises(tensor_ops.ConfigError, match="no capability"):
        other(HardwareType.CPU, capabilities=frozenset({"speed"}))
    with pytest.raises(tensor_ops.ConfigError, match="no capability"):
        other(HardwareType.CPU).supports("speed")


def test_the_guide_lists_every_capability():
    page = Path(__file__).parents[4] / "docs/guides/pytorch_backends.md"
    table = page.read_text(encoding="utf-8").split("| capability |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` ", table, re.MULTILINE)) == set(CAPABILITIES)


def test_kinds_of_hardware_are_spelled_right():
    with pytest.raises(tensor_ops.ConfigError, match=r"'nvidea' is no kind.*'nvidia'\?.*mps, cpu"):
        HardwareDetector().find("nvidea")

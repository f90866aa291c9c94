"""Builds of PyTorch and devices that this machine lacks.

They are pretended to: what is tested so is which of PyTorch's switches are set and what is said,
not what a GPU then does.
"""

from types import SimpleNamespace

import pytest
import torch

from tensor_ops_devices.backends import nvidia
from tensor_ops_devices.backends.runtimes import HostRuntime
from tensor_ops_devices.hardware.profile import GB, HardwareProfile, HardwareType

MIB = 2**20

GPUS = {
    "V100": ("Tesla V100-SXM2-16GB", (7, 0), 16),
    "T4": ("Tesla T4", (7, 5), 15),
    "A100": ("NVIDIA A100-SXM4-80GB", (8, 0), 80),
    "L4": ("NVIDIA L4", (8, 9), 22),
    "H100": ("NVIDIA H100 80GB HBM3", (9, 0), 80),
    "B200": ("NVIDIA B200", (10, 0), 180),
}


class Pretended:
    """Makes PyTorch say that it was built for something, and what devices it finds."""

    def __init__(self, monkeypatch):
        self.patch = monkeypatch

    def build(self, cuda=None, hip=None, mps=False):
        self.patch.setattr(torch.version, "cuda", cuda)
        self.patch.setattr(torch.version, "hip", hip)
        self.patch.setattr(torch.backends.mps, "is_built", lambda: mps)

    def devices(self, cuda=0, mps=False):
        self.patch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        self.patch.setattr(torch.cuda, "device_count", lambda: cuda)
        self.patch.setattr(torch.backends.mps, "is_available", lambda: mps)

    def gpu(self, **build):
        """Have one GPU, of CUDA unless `build` says otherwise."""
        self.build(**(build or {"cuda": "13.0"}))
        self.devices(cuda=1)
        facts = SimpleNamespace(name="A pretended GPU", major=9, minor=0)
        self.patch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
        self.patch.setattr(torch.cuda, "mem_get_info", lambda device: (3 * MIB, 8 * MIB))
        self.patch.setattr(torch.cuda, "memory_allocated", lambda device: MIB)
        self.patch.setattr(torch.cuda, "memory_reserved", lambda device: 2 * MIB)
        self.patch.setattr(torch.cuda, "is_bf16_supported", lambda: True)

    def apple(self):
        """Have an Apple GPU."""
        self.build(mps=True)
        self.devices(mps=True)
        for name in ("current_allocated_memory", "driver_allocated_memory"):
            self.patch.setattr(torch.mps, name, lambda: MIB)
        self.patch.setattr(torch.mps, "recommended_max_memory", lambda: 8 * MIB)
        self.patch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *version: True)


@pytest.fixture
def pretend(monkeypatch):
    return Pretended(monkeypatch)


class Gpu:
    """The calls of ``torch.cuda``, in order."""

    def __init__(self, name, capability, memory):
        self.name, self.capability, self.memory = name, capability, memory
        self.calls = []

    def record(self, name, result=None):
        def call(*args, **kwargs):
            self.calls.append((name, *args))
            return result

        return call

    def asked(self, name):
        return [rest for called, *rest in self.calls if called == name]


class PlayedRuntime(HostRuntime):
    """A runtime whose device is the CPU."""

    def __init__(self, device_id=0):
        super().__init__()
        self.device_id = device_id


@pytest.fixture
def gpu(monkeypatch):
    """A function that lets PyTorch report a GPU of `GPUS`, whose tensors are the CPU's."""

    def make(model, count=1):
        name, capability, memory = GPUS[model]
        played = Gpu(name, capability, memory)
        properties = SimpleNamespace(
            name=name,
            major=capability[0],
            minor=capability[1],
            total_memory=memory * GB,
            multi_processor_count=100,
        )
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.version, "hip", None)
        cuda = torch.cuda
        monkeypatch.setattr(cuda, "is_available", lambda: True)
        monkeypatch.setattr(cuda, "device_count", lambda: count)
        monkeypatch.setattr(cuda, "get_device_properties", lambda _: properties)
        monkeypatch.setattr(cuda, "get_arch_list", lambda: ["sm_70", "sm_80", "sm_90", "sm_100"])
        record = played.record
        monkeypatch.setattr(cuda, "set_per_process_memory_fraction", record("fraction"))
        monkeypatch.setattr(cuda.memory, "get_per_process_memory_fraction", lambda _: 0.75)
        monkeypatch.setattr(nvidia, "set_allocator", record("allocator"))
        monkeypatch.setattr(nvidia, "CudaRuntime", PlayedRuntime)
        for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            monkeypatch.delenv(variable, raising=False)
        return played

    return make


@pytest.fixture
def tpu_profile():
    """A function that returns the facts of a TPU."""

    def make(version, hosts=1, slices=1):
        return HardwareProfile(
            HardwareType.TPU,
            f"TPU {version}",
            4,
            16.0,
            tpu_version=version,
            host_count=hosts,
            slice_count=slices,
            capabilities=frozenset({"xla", "bfloat16", "multi_device"}),
        )

    return make

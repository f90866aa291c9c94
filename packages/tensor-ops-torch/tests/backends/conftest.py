"""Hardware that is not here, played by the CPU.

What these tests show is what our code asks of PyTorch and does with the answers; that a GPU then
does it is for tools/gpu_check.py, on a machine with one.
"""

from types import SimpleNamespace

import pytest
import torch

from tensor_ops_torch.backends import nvidia
from tensor_ops_torch.backends.runtimes import HostRuntime
from tensor_ops_torch.core.profile import GB, HardwareProfile, HardwareType

GPUS = {
    "V100": ("Tesla V100-SXM2-16GB", (7, 0), 16),
    "T4": ("Tesla T4", (7, 5), 15),
    "A100": ("NVIDIA A100-SXM4-80GB", (8, 0), 80),
    "L4": ("NVIDIA L4", (8, 9), 22),
    "H100": ("NVIDIA H100 80GB HBM3", (9, 0), 80),
    "B200": ("NVIDIA B200", (10, 0), 180),
}


class Gpu:
    """What was asked of ``torch.cuda``, in order."""

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
        monkeypatch.setattr(nvidia, "_set_allocator", record("allocator"))
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

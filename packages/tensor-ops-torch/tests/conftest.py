"""Builds of PyTorch and devices that this machine lacks.

They are pretended to: what is tested so is which of PyTorch's switches are set and what is said,
not what a GPU then does.
"""

from types import SimpleNamespace

import pytest
import torch

MIB = 2**20


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

"""The devices of backends, as the libraries that drive them tell of them."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from typing import Any

import torch

from tensor_ops.extension import machine
from tensor_ops_devices.hardware.cpu import allowed_memory

__all__ = ["CudaRuntime", "HostRuntime", "MpsRuntime", "Runtime", "XlaRuntime", "XpuRuntime"]


class Runtime(ABC):
    """A device: its memory in bytes, and when its work is done."""

    device: torch.device
    has_kernels = False  # of tensor_ops, for the device

    @abstractmethod
    def memory(self) -> dict[str, int]:
        """Return ``allocated``, ``reserved``, ``peak``, ``total`` and ``free`` bytes."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all work of the device is done."""

    @abstractmethod
    def empty_cache(self) -> None:
        """Give memory that no tensor uses back to the device."""


class HostRuntime(Runtime):
    """The CPU: the memory is that of the process, and its work is done when a call returns."""

    has_kernels = True

    def __init__(self) -> None:
        self.device = torch.device("cpu")

    def memory(self) -> dict[str, int]:
        found = machine.memory_of_process()
        used, total = found.get("used", 0), allowed_memory()
        # The machine may have more left than a cgroup allows.
        free = min(found.get("available", total), max(0, total - used))
        return _memory(used, used, max(used, found.get("peak", 0)), total, free)

    def synchronize(self) -> None:
        """Do nothing: a call on the CPU returns when it is done."""

    def empty_cache(self) -> None:
        """Collect garbage; PyTorch keeps no memory of the CPU."""
        gc.collect()


class _GpuRuntime(Runtime):
    """A device whose allocator PyTorch's module `module` asks, such as ``torch.cuda``."""

    module: Any

    def memory(self) -> dict[str, int]:
        free, total = self._free_and_total()
        return _memory(
            self.module.memory_allocated(self.device),
            self.module.memory_reserved(self.device),
            self.module.max_memory_allocated(self.device),
            total,
            free,
        )

    @abstractmethod
    def _free_and_total(self) -> tuple[int, int]: ...

    def synchronize(self) -> None:
        self.module.synchronize(self.device)

    def empty_cache(self) -> None:
        self.module.empty_cache()


class CudaRuntime(_GpuRuntime):
    """A GPU of ``torch.cuda``: NVIDIA's, and AMD's with a PyTorch for ROCm."""

    def __init__(self, device_id: int = 0) -> None:
        self.module, self.device = torch.cuda, torch.device("cuda", device_id)
        self.has_kernels = torch.version.hip is None

    def _free_and_total(self) -> tuple[int, int]:
        return torch.cuda.mem_get_info(self.device)


class XpuRuntime(_GpuRuntime):
    """An Intel GPU."""

    def __init__(self) -> None:
        self.module, self.device = torch.xpu, torch.device("xpu", 0)

    def _free_and_total(self) -> tuple[int, int]:
        total = torch.xpu.get_device_properties(self.device).total_memory
        return total - torch.xpu.memory_reserved(self.device), total


class MpsRuntime(Runtime):
    """An Apple GPU. Metal does not tell the peak: it is the highest that was asked for."""

    def __init__(self) -> None:
        self.device = torch.device("mps")
        self._peak = 0

    def memory(self) -> dict[str, int]:
        allocated = torch.mps.current_allocated_memory()
        reserved = torch.mps.driver_allocated_memory()
        total = torch.mps.recommended_max_memory()
        self._peak = max(self._peak, allocated)
        return _memory(allocated, reserved, self._peak, total, max(0, total - reserved))

    def synchronize(self) -> None:
        torch.mps.synchronize()

    def empty_cache(self) -> None:
        torch.mps.empty_cache()


class XlaRuntime(Runtime):
    """A device of torch_xla: a TPU, or the CPU through XLA with ``PJRT_DEVICE=CPU``."""

    def __init__(self) -> None:
        import torch_xla
        import torch_xla.core.xla_model as xm

        self._xm: Any = xm
        # The function of today, and that of before torch_xla 2.7.
        self._step: Any = getattr(torch_xla, "sync", None) or xm.mark_step
        self.device = torch_xla.device()
        self._is_tpu = xm.xla_device_hw(self.device) == "TPU"

    def memory(self) -> dict[str, int]:
        if not self._is_tpu:  # XLA counts a TPU's memory only
            return HostRuntime().memory()
        found = self._xm.get_memory_info(self.device)
        used, total = found["bytes_used"], found["bytes_limit"]
        return _memory(used, used, found.get("peak_bytes_used", used), total, total - used)

    def synchronize(self) -> None:
        """Run what was traced so far, and wait for it."""
        self._step()
        self._xm.wait_device_ops()

    def empty_cache(self) -> None:
        """Collect garbage and wait: XLA gives memory back when its work is done."""
        gc.collect()
        self.synchronize()


def _memory(*sizes: int) -> dict[str, int]:
    return dict(zip(("allocated", "reserved", "peak", "total", "free"), sizes, strict=True))

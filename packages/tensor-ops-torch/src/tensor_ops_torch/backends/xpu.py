"""An Intel GPU."""

from tensor_ops_torch.backends.base import Backend
from tensor_ops_torch.backends.runtimes import Runtime, XpuRuntime
from tensor_ops_torch.hardware.detector import HardwareType, probe

__all__ = ["XPUBackend"]


class XPUBackend(Backend):
    """An Intel GPU. tensor_ops has no kernels for it yet.

    No setting is about it. See `Backend` for parameters and methods.
    """

    name = "xpu"

    def _find(self) -> Runtime | str:
        found = probe(HardwareType.XPU)
        return found if isinstance(found, str) else XpuRuntime()

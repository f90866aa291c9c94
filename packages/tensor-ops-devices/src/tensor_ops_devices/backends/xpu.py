"""An Intel GPU."""

from tensor_ops_devices.backends.base import Backend
from tensor_ops_devices.backends.runtimes import XpuRuntime

__all__ = ["XPUBackend"]


class XPUBackend(Backend):
    """An Intel GPU. tensor_ops has no kernels for it yet.

    No setting is about it. See `Backend` for parameters and methods.
    """

    name = "xpu"
    _runtime_class = XpuRuntime

"""An AMD GPU."""

from tensor_ops_devices.backends.base import Backend
from tensor_ops_devices.backends.runtimes import CudaRuntime

__all__ = ["AMDBackend"]


class AMDBackend(Backend):
    """An AMD GPU, with a PyTorch built for ROCm. tensor_ops has no kernels for it yet.

    No setting is about it. See `Backend` for parameters and methods.
    """

    name = "amd"
    _runtime_class = CudaRuntime

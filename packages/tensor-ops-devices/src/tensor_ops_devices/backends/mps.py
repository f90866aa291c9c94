"""An Apple GPU."""

from tensor_ops_devices.backends.base import Backend
from tensor_ops_devices.backends.runtimes import MpsRuntime

__all__ = ["MPSBackend"]


class MPSBackend(Backend):
    """An Apple GPU. tensor_ops has no kernels for it yet.

    No setting is about it. See `Backend` for parameters and methods.
    """

    name = "mps"
    _runtime_class = MpsRuntime

"""An Apple GPU."""

from tensor_ops_torch.backends.base import Backend
from tensor_ops_torch.backends.runtimes import MpsRuntime, Runtime
from tensor_ops_torch.hardware.detector import HardwareType, probe

__all__ = ["MPSBackend"]


class MPSBackend(Backend):
    """An Apple GPU. tensor_ops has no kernels for it yet.

    No setting is about it. See `Backend` for parameters and methods.
    """

    name = "mps"

    def _find(self) -> Runtime | str:
        found = probe(HardwareType.MPS)
        return found if isinstance(found, str) else MpsRuntime()

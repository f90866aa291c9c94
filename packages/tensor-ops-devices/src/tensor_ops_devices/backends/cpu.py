"""The CPU."""

from tensor_ops_devices.backends.base import Backend
from tensor_ops_devices.backends.runtimes import HostRuntime

__all__ = ["CPUBackend"]


class CPUBackend(Backend):
    """The CPU, with the kernels of tensor_ops_cpp. No setting is about it.

    Examples
    --------
    >>> import torch
    >>> from tensor_ops_devices.backends.cpu import CPUBackend
    >>> CPUBackend().prepare_model(torch.nn.Linear(4, 2)).weight.device
    device(type='cpu')
    """

    name = "cpu"
    _runtime_class = HostRuntime

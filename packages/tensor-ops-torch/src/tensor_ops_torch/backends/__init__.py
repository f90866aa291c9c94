"""Devices that models are prepared for, and the one that is best here.

>>> from tensor_ops_torch.backends import create_backend
>>> create_backend().name in ("nvidia", "tpu", "amd", "xpu", "mps", "cpu")
True
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module

from tensor_ops_torch.backends.base import Backend
from tensor_ops_torch.hardware.config import KernelPyTorchConfig
from tensor_ops_torch.hardware.detector import HardwareDetector

__all__ = ["BACKENDS", "Backend", "create_backend"]

# Where each is defined; a module is imported when its backend is asked for.
BACKENDS = {
    "nvidia": "tensor_ops_torch.backends.nvidia:NVIDIABackend",
    "tpu": "tensor_ops_torch.backends.tpu:TPUBackend",
    "amd": "tensor_ops_torch.backends.amd:AMDBackend",
    "xpu": "tensor_ops_torch.backends.xpu:XPUBackend",
    "mps": "tensor_ops_torch.backends.mps:MPSBackend",
    "cpu": "tensor_ops_torch.backends.cpu:CPUBackend",
}


def create_backend(
    config: KernelPyTorchConfig | None = None, requires: Collection[str] = ()
) -> Backend:
    """Make the backend of the best hardware, as `HardwareDetector.get_optimal_backend` names it.

    Parameters
    ----------
    config : KernelPyTorchConfig, optional
    requires : collection of str
        What the work needs of the hardware.

    Returns
    -------
    Backend

    Raises
    ------
    TypeError
        If `config` is none.
    tensor_ops.BackendError
        If no hardware has what is required, or it cannot do what `config` asks for.
    """
    if isinstance(config, str):
        raise TypeError(
            f"create_backend takes the best hardware that is here and the settings for it, got the "
            f"name {config!r}; {_class_of(config)}"
        )
    name = HardwareDetector().get_optimal_backend(requires)
    module, _, kind = BACKENDS[name].partition(":")
    backend: Backend = getattr(import_module(module), kind)(config, fallback=False)
    return backend


def _class_of(name: str) -> str:
    kinds = {each: place.partition(":")[2] for each, place in BACKENDS.items()}
    if name.lower() in kinds:
        return f"for that hardware make a {kinds[name.lower()]}"
    return f"for one kind of hardware make one of {', '.join(kinds.values())}"

"""Devices that models are prepared for, and the one that is best here.

>>> from tensor_ops_devices.backends import create_backend
>>> create_backend().name in ("nvidia", "tpu", "amd", "xpu", "mps", "cpu")
True
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module

from tensor_ops_devices.backends.base import Backend
from tensor_ops_devices.hardware.config import KernelPyTorchConfig
from tensor_ops_devices.hardware.detector import HardwareDetector, HardwareType

__all__ = ["BACKENDS", "Backend", "create_backend"]

# The class of each, in the module of its name, which is imported when the backend is asked for.
BACKENDS = {kind.value: f"{kind.name}Backend" for kind in HardwareType}


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
    kind = getattr(import_module(f"{__name__}.{name}"), BACKENDS[name])
    backend: Backend = kind(config, fallback=False)
    return backend


def _class_of(name: str) -> str:
    if name.lower() in BACKENDS:
        return f"for that hardware make a {BACKENDS[name.lower()]}"
    return f"for one kind of hardware make one of {', '.join(BACKENDS.values())}"

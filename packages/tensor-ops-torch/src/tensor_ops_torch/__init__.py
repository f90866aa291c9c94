"""The ops of tensor_ops as PyTorch operators, and what goes with them.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.silu(torch.zeros(3))
tensor([0., 0., 0.])
"""

from importlib import import_module as _import_module
from typing import Any as _Any

from tensor_ops_torch.ops import FUNCTIONS as _FUNCTIONS

__version__ = "0.1.0"

__all__: list[str] = []

for _name in _FUNCTIONS:
    globals()[_name] = _FUNCTIONS[_name]
    __all__ += [_name]  # noqa: PLE0604

from tensor_ops_torch import modules as _modules  # noqa: E402
from tensor_ops_torch.modules import *  # noqa: E402, F403

__all__ += _modules.__all__

# Imported when they are first asked for: few programs need them all.
_LATER = {
    "CPUBackend": "backends.cpu",
    "HardwareDetector": "core.hardware_detector",
    "HardwareProfile": "core.hardware_detector",
    "KernelPyTorchConfig": "core.config",
    "NVIDIABackend": "backends.nvidia",
    "TPUBackend": "backends.tpu",
    "UnifiedValidator": "validation.unified_validator",
    "create_backend": "backends",
    "load_checkpoint": "checkpoint",
    "save_checkpoint": "checkpoint",
}
__all__ += sorted(_LATER)  # noqa: PLE0605


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

"""The ops of tensor_ops as PyTorch operators, and what goes with them.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.silu(torch.zeros(3))
tensor([0., 0., 0.])
"""

from importlib import import_module as _import_module
from typing import Any as _Any
from warnings import warn as _warn

from tensor_ops import BackendError
from tensor_ops_torch import pytorch as _pytorch
from tensor_ops_torch.devices.amp import resolve_amp_config
from tensor_ops_torch.devices.device import resolve_torch_device
from tensor_ops_torch.devices.providers import resolve_ort_providers
from tensor_ops_torch.devices.session import SessionExplanation, create_session, explain_session
from tensor_ops_torch.devices.tuning import Tuning, configure_torch_backend

__version__ = "0.1.0"

__all__: list[str] = [
    "BackendError",
    "SessionExplanation",
    "Tuning",
    "configure_torch_backend",
    "create_session",
    "explain_session",
    "resolve_amp_config",
    "resolve_ort_providers",
    "resolve_torch_device",
]

# Functions with a name that says more. The backends' method prepare_model does something else.
_RENAMED = {"prepare_model": "prepare_model_with_custom_kernels"}

# Without PyTorch the names above can be imported, and what of them needs it says so when called.
if _pytorch.is_usable():
    from tensor_ops_torch.modules import *  # noqa: F403
    from tensor_ops_torch.modules import __all__ as _of_modules
    from tensor_ops_torch.ops import FUNCTIONS as _FUNCTIONS

    for _name in _FUNCTIONS:
        globals()[_name] = _FUNCTIONS[_name]
        __all__ += [_name]  # noqa: PLE0604

    __all__ += _of_modules  # noqa: PLE0605
    for _name in _RENAMED:
        del globals()[_name]
        __all__.remove(_name)

# Imported when they are first asked for: few programs need them all.
_LATER = {
    "AMPConfig": "devices.amp",
    "AMDBackend": "backends.amd",
    "Backend": "backends",
    "CPUBackend": "backends.cpu",
    "Decoder": "decoding.decoder",
    "DecoderExplanation": "decoding.explanation",
    "GenerationSetting": "decoding.generation_settings",
    "HardwareConfig": "hardware.config",
    "HardwareDetector": "hardware.detector",
    "HardwareProfile": "hardware.detector",
    "HardwareType": "hardware.detector",
    "KernelPyTorchConfig": "hardware.config",
    "MPSBackend": "backends.mps",
    "MemoryMonitor": "backends.monitor",
    "MemorySample": "backends.monitor",
    "NVIDIAArchitecture": "hardware.config",
    "NVIDIABackend": "backends.nvidia",
    "NVIDIAConfig": "hardware.config",
    "OpLayer": "kernel_layers",
    "RefusedSettingError": "decoding.errors",
    "TPUBackend": "backends.tpu",
    "TPUCompilationMode": "hardware.config",
    "TPUConfig": "hardware.config",
    "TPUTopology": "hardware.config",
    "TPUVersion": "hardware.config",
    "UnsupportedModelError": "decoding.errors",
    "UnifiedValidator": "validation.unified_validator",
    "ValidationCheck": "validation.report",
    "ValidationReport": "validation.report",
    "WeightsChangedError": "decoding.errors",
    "XPUBackend": "backends.xpu",
    "create_backend": "backends",
    "decoder": "decoding.decoder",
    "generation_settings": "decoding.generation_settings",
    "kernel_mapping": "kernel_layers",
    "load_checkpoint": "checkpoint",
    "save_checkpoint": "checkpoint",
}
__all__ += sorted(_LATER)  # noqa: PLE0605


def __getattr__(name: str) -> _Any:
    if not name.startswith("_"):
        _pytorch.require()
    if name in _RENAMED:
        _warn(
            f"tensor_ops_torch.{name} swaps modules, as tensor_ops_torch.{_RENAMED[name]} does: "
            f"use that. The method {name} of a backend moves a model to its device",
            DeprecationWarning,
            stacklevel=2,
        )
        return globals()[_RENAMED[name]]
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

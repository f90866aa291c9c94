"""Where models run: the hardware that is here, PyTorch's devices, ONNX Runtime's providers.

>>> import tensor_ops_devices
>>> tensor_ops_devices.resolve_torch_device("cpu")
device(type='cpu')
"""

from importlib import import_module as _import_module
from typing import Any as _Any

from tensor_ops import BackendError
from tensor_ops_devices import pytorch as _pytorch
from tensor_ops_devices.devices.amp import resolve_amp_config
from tensor_ops_devices.devices.device import resolve_torch_device
from tensor_ops_devices.devices.providers import resolve_ort_providers
from tensor_ops_devices.devices.session import SessionExplanation, create_session, explain_session
from tensor_ops_devices.devices.tuning import Tuning, configure_torch_backend

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

# Without PyTorch all else can be imported, and says so when PyTorch is asked for something.
_pytorch.needed_by(*(f"{__name__}.{room}" for room in ("backends", "checkpoint", "validation")))

# Imported when they are first asked for: few programs need them all.
_LATER = {
    "AMPConfig": "devices.amp",
    "AMDBackend": "backends.amd",
    "Backend": "backends",
    "CPUBackend": "backends.cpu",
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
    "TPUBackend": "backends.tpu",
    "TPUCompilationMode": "hardware.config",
    "TPUConfig": "hardware.config",
    "TPUTopology": "hardware.config",
    "TPUVersion": "hardware.config",
    "UnifiedValidator": "validation.unified_validator",
    "ValidationCheck": "validation.report",
    "ValidationReport": "validation.report",
    "XPUBackend": "backends.xpu",
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

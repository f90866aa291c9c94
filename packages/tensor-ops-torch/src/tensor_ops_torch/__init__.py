"""The ops of tensor_ops as PyTorch operators, and what goes with them.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.silu(torch.zeros(3))
tensor([0., 0., 0.])
"""

import sys as _sys
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any
from warnings import warn as _warn

import tensor_ops_devices as _devices
from tensor_ops import BackendError
from tensor_ops_devices import pytorch as _pytorch
from tensor_ops_torch.former_names import FormerNames as _FormerNames

if _TYPE_CHECKING:
    from tensor_ops_devices import *  # noqa: F403

__version__ = "0.1.0"

__all__: list[str] = ["BackendError"]

_pytorch.needed_by(f"{__name__}.")
_sys.meta_path.insert(0, _FormerNames)

# Functions with a name that says more. The backends' method prepare_model does something else.
_RENAMED = {"prepare_model": "prepare_model_with_custom_kernels"}

# Without PyTorch the package can be imported for what tensor_ops_devices has.
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
    "Decoder": "decoding.decoder",
    "DecoderExplanation": "decoding.explanation",
    "GenerationSetting": "decoding.generation_settings",
    "OpLayer": "kernel_layers",
    "RefusedSettingError": "decoding.errors",
    "UnsupportedModelError": "decoding.errors",
    "WeightsChangedError": "decoding.errors",
    "decoder": "decoding.decoder",
    "generation_settings": "decoding.generation_settings",
    "kernel_mapping": "kernel_layers",
}
__all__ += sorted(_LATER)  # noqa: PLE0605


def __getattr__(name: str) -> _Any:
    if name in (*_devices.__all__, "devices"):  # former names
        return getattr(_devices, name)
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
    return [*{*__all__, *_devices.__all__}, "__version__"]

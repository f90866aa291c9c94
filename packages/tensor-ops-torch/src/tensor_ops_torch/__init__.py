"""The ops of tensor_ops as PyTorch operators, and what goes with them.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.silu(torch.zeros(3))
tensor([0., 0., 0.])
"""

from tensor_ops import BackendError
from tensor_ops_torch import pytorch as _pytorch  # noqa: F401 - raises where PyTorch is missing
from tensor_ops_torch.amp import resolve_amp_config
from tensor_ops_torch.device import resolve_torch_device
from tensor_ops_torch.ops import FUNCTIONS as _FUNCTIONS
from tensor_ops_torch.providers import resolve_ort_providers
from tensor_ops_torch.session import SessionExplanation, create_session, explain_session
from tensor_ops_torch.tuning import Tuning, configure_torch_backend

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

for _name in _FUNCTIONS:
    globals()[_name] = _FUNCTIONS[_name]
    __all__ += [_name]  # noqa: PLE0604

from tensor_ops_torch import modules as _modules  # noqa: E402
from tensor_ops_torch.modules import *  # noqa: E402, F403

__all__ += _modules.__all__

"""The ops of tensor_ops as PyTorch operators, and what goes with them.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.silu(torch.zeros(3))
tensor([0., 0., 0.])
"""

from tensor_ops_torch.ops import FUNCTIONS as _FUNCTIONS

__version__ = "0.1.0"

__all__: list[str] = []

for _name in _FUNCTIONS:
    globals()[_name] = _FUNCTIONS[_name]
    __all__ += [_name]  # noqa: PLE0604

from tensor_ops_torch import modules as _modules  # noqa: E402
from tensor_ops_torch.modules import *  # noqa: E402, F403

__all__ += _modules.__all__

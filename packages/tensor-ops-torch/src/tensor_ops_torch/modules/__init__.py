"""Swapping the modules of a model for the ops of tensor_ops, by the source of what they compute.

>>> import torch
>>> from tensor_ops_torch.modules import restore_model, swap_modules
>>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
>>> swap_modules(model).counts
{'gelu': 1}
>>> swap_modules(restore_model(model), strict=True).counts
{'gelu': 1}
"""

from tensor_ops_torch.modules.report import SwapEntry, SwapError, SwapReport
from tensor_ops_torch.modules.swap import (
    prepare_model,
    prepare_model_with_custom_kernels,
    restore_model,
    swap_modules,
    swap_report,
)

__all__ = [
    "SwapEntry",
    "SwapError",
    "SwapReport",
    "prepare_model",
    "prepare_model_with_custom_kernels",
    "restore_model",
    "swap_modules",
    "swap_report",
]

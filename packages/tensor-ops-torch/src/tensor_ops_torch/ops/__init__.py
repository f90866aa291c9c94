"""PyTorch's side of the ops, one file for each of tensor_ops."""

from importlib import import_module

from tensor_ops.extension import OPS
from tensor_ops_torch.operators import sharding
from tensor_ops_torch.operators.definition import define
from tensor_ops_torch.operators.function import function_of

__all__ = ["FUNCTIONS", "OPERATORS"]

_FILES = {name: import_module(f"{__name__}.{name}") for name in OPS}
OPERATORS = {name: define(OPS[name], file) for name, file in _FILES.items()}
FUNCTIONS = {name: function_of(OPS[name], OPERATORS[name], _FILES[name]) for name in OPS}
sharding.register(OPERATORS, OPS)

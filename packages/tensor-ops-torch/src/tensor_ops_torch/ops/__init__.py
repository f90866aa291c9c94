"""PyTorch's side of the ops, one file for each of tensor_ops."""

from importlib import import_module

from tensor_ops.ops import OPS
from tensor_ops_torch import sharding
from tensor_ops_torch.operator import define

__all__ = ["OPERATORS"]

OPERATORS = {name: define(op, import_module(f"{__name__}.{name}")) for name, op in OPS.items()}
sharding.register(OPERATORS, OPS)

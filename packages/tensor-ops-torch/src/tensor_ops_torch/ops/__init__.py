"""PyTorch's side of the ops: the formulas of each that has a file here, under the op's name."""

from importlib import import_module
from pkgutil import iter_modules

from tensor_ops.extension import OPS
from tensor_ops_torch.operators import sharding
from tensor_ops_torch.operators.definition import define
from tensor_ops_torch.operators.function import function_of

__all__ = ["DIRECT", "FORMULAS", "FUNCTIONS", "OPERATORS"]

#: The files, by the names of their ops. An op without one has no derivatives in PyTorch.
FORMULAS = {
    each.name: import_module(f"{__name__}.{each.name}")
    for each in iter_modules(__path__)
    if each.name in OPS
}
_DEFINED = {name: define(op, FORMULAS.get(name)) for name, op in OPS.items()}
OPERATORS = {name: operator for name, (operator, _) in _DEFINED.items()}
#: What the operators compute, for calls that can bypass the dispatcher.
DIRECT = {name: direct for name, (_, direct) in _DEFINED.items()}
FUNCTIONS = {name: function_of(op, *_DEFINED[name], FORMULAS.get(name)) for name, op in OPS.items()}
sharding.register(OPERATORS, OPS)

"""What TorchScript keeps of a module: the class that was compiled, and the weights of a frozen one.

A compiled module is a ``torch.jit.ScriptModule`` in Python, whichever class it was made of.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["constants", "defining_module"]

# optimize_for_inference has weights in a layout of oneDNN.
_CONSTANTS = ("prim::Constant", "prim::ConstantMKLDNNTensor")


def defining_module(module: nn.Module) -> str:
    """Return the name of the Python module that defines the class of a module.

    Examples
    --------
    >>> defining_module(torch.nn.Linear(2, 2))
    'torch.nn.modules.linear'
    """
    if not isinstance(module, torch.jit.ScriptModule):
        return type(module).__module__
    name: str = module._c._type().qualified_name()  # as "__torch__.torch.nn.modules.linear.Linear"
    # A name that is compiled twice gets a part of its own, such as "___torch_mangle_0".
    parts = [each for each in name.split(".")[:-1] if not each.startswith("___torch_mangle")]
    return ".".join(parts[1:])


def constants(module: nn.Module) -> list[Tensor]:
    """Return the arrays that the forward of a module has as constants, as those of a frozen one.

    They are neither parameters nor buffers, and stay where they are when the module is moved.
    Scalars are left out: operators take them from the CPU on every device.
    """
    if not isinstance(module, torch.jit.ScriptModule) or not module._c._has_method("forward"):
        return []
    graph = module._c._get_method("forward").graph
    values = (
        each.t("value")
        for kind in _CONSTANTS
        for each in graph.findAllNodes(kind, recurse=True)
        if each.hasAttribute("value") and each.kindOf("value") == "t"
    )
    return [each for each in values if each.dim() > 0]

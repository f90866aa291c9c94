"""``torch.fx.symbolic_trace`` of swapped modules: what it records is the module's own forward."""

import copy
import inspect

import pytest
import torch
from small_models import GemmaNorm, SwiGLU, make_model
from torch import nn

from tensor_ops_torch import swap_modules

MODULES = {
    "RMSNorm": lambda: nn.RMSNorm(16, eps=1e-6),
    "LayerNorm": lambda: nn.LayerNorm(16),
    "SiLU": nn.SiLU,
    "GELU": lambda: nn.GELU("tanh"),
    "Softmax": lambda: nn.Softmax(-1),
    "SwiGLU": SwiGLU,
    "GemmaNorm": lambda: GemmaNorm(16),
    "a whole model": make_model,
}


@pytest.mark.parametrize("name", MODULES)
def test_a_model_that_is_itself_swapped_can_be_traced(name, x):
    module = MODULES[name]().eval()
    unswapped = copy.deepcopy(module)
    swap_modules(module, strict=True)
    traced, wanted = (torch.fx.symbolic_trace(each) for each in (module, unswapped))
    assert [(each.op, each.name) for each in traced.graph.nodes] == [
        (each.op, each.name) for each in wanted.graph.nodes
    ]
    torch.testing.assert_close(traced(x), module(x))


@pytest.mark.parametrize("name", MODULES)
def test_the_signature_stays_that_of_the_module(name):
    module = MODULES[name]()
    before = inspect.signature(module.forward)
    swap_modules(module, strict=True)
    assert inspect.signature(module.forward) == before

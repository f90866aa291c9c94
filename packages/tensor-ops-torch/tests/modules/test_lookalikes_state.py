"""Modules whose attributes, parameters or hooks change between calls."""

import inspect
import itertools
import math

import pytest
import torch
from lookalike_bases import (
    GemmaNorm,
    LlamaNorm,
    TorchLayerNorm,
    TorchRMSNorm,
    drawn,
    forward_on_the_instance,
    plus_one,
    post_hook,
    pre_hook,
    small,
)
from lookalikes import (  # noqa: F401 -- the tests of this file
    SINGLE,
    WIDTH,
    Lookalikes,
    draw,
    of,
    setting,
    test_a_lookalike_does_what_its_own_forward_does,
    test_a_lookalike_is_not_the_op,
    test_an_op_in_other_words_does_what_its_own_forward_does,
)
from torch import nn
from torch.nn.utils import parametrize

pytestmark = pytest.mark.usefixtures("one_thread")
CASES = Lookalikes()
add = CASES.add


NORMS = {
    "llama": LlamaNorm,
    "gemma": GemmaNorm,
    "torch": TorchRMSNorm,
    "layer": TorchLayerNorm,
}
WRITTEN = (LlamaNorm, GemmaNorm, nn.RMSNorm, nn.LayerNorm)


def parameter(*shape, dtype=None):
    """Return a change that replaces the weight."""

    def change(module, patch):
        values = draw(*shape, seed=4).to(dtype or module.weight.dtype)
        module.weight = nn.Parameter(values)

    return change


class Halving(torch.Tensor):
    """A weight that multiplies by half of itself."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        named = getattr(func, "__name__", "")
        factors = ("mul", "__mul__", "__rmul__", "rms_norm", "layer_norm", "add", "__radd__")
        return result / 2 if named in factors else result


def subclass_weight(module, patch):
    weight = module.weight.detach().clone().as_subclass(Halving)
    module.weight = nn.Parameter(weight)


def overloaded_weight(module, patch):
    class Constant:
        shape = torch.Size([WIDTH])
        dtype = torch.float32

        def __mul__(self, other):
            return other * 3

        __rmul__ = __mul__

        def float(self):
            return self

        def __radd__(self, other):
            return self

    del module.weight
    module.weight = Constant()


def without_weight(module, patch):
    del module.weight


def parametrize_weight(module, patch):
    class Double(nn.Module):
        def forward(self, weight):
            return 2 * weight

    parametrize.register_parametrization(module, "weight", Double())


def forward_on_the_class(module, patch):
    """Replace it on the class that was written, whatever class a swap gave the module."""
    owner = next(each for each in type(module).__mro__ if each in WRITTEN)
    patch.setattr(owner, "forward", lambda self, x: x + 1)


def code_of_forward(module, patch):
    owner = next(each for each in type(module).__mro__ if each in WRITTEN)
    forward = inspect.unwrap(owner.__dict__["forward"])
    patch.setattr(forward, "__code__", plus_one.__code__)


STATES = {
    "eps grows": setting(eps=0.5),
    "eps of zero": setting(eps=0.0),
    "eps below zero": setting(eps=-0.5),
    "eps not finite": setting(eps=math.inf),
    "eps not a number": setting(eps=math.nan),
    "eps of True": setting(eps=True),
    "eps of None": setting(eps=None),
    "eps of text": setting(eps="1e-5"),
    "eps of a scalar tensor": setting(eps=lambda: torch.tensor(0.5)),
    "eps of a row": setting(eps=lambda: torch.linspace(0, 2, WIDTH)),
    "eps with gradient": setting(eps=lambda: nn.Parameter(torch.tensor(0.5))),
    "weight of None": setting(weight=None),
    "weight of ones": setting(weight=lambda: nn.Parameter(torch.ones(WIDTH))),
    "weight is missing": without_weight,
    "weight of one number": parameter(1),
    "weight of no axis": parameter(),
    "weight of two axes": parameter(3, WIDTH),
    "weight of 32": parameter(32),
    "weight in float64": parameter(WIDTH, dtype=torch.float64),
    "weight in bfloat16": parameter(WIDTH, dtype=torch.bfloat16),
    "weight is a subclass": subclass_weight,
    "weight with operators of its own": overloaded_weight,
    "weight is parametrized": parametrize_weight,
    "weight without gradient": lambda module, patch: module.requires_grad_(False),
    "module in float64": lambda module, patch: module.double(),
    "module in bfloat16": lambda module, patch: module.bfloat16(),
    "forward on the instance": forward_on_the_instance,
    "forward on the class": forward_on_the_class,
    "code of forward": code_of_forward,
    "hook before": pre_hook,
    "hook after": post_hook,
}


for (_kind, _norm), (_state_name, _change) in itertools.product(NORMS.items(), STATES.items()):
    add(f"{_kind}: {_state_name}", _norm, _change, dtypes=SINGLE, inputs=small)


add("shape of RMSNorm", TorchRMSNorm, setting(normalized_shape=(3, WIDTH)), dtypes=SINGLE)


add("shape of LayerNorm", TorchLayerNorm, setting(normalized_shape=(32,)), dtypes=SINGLE)


add("bias of None", TorchLayerNorm, setting(bias=None), dtypes=SINGLE)


add(
    "shapes of two axes",
    drawn(lambda: nn.LayerNorm((3, WIDTH))),
    inputs=of(2, 3, WIDTH),
    like=TorchLayerNorm,
)


OPS = NORMS

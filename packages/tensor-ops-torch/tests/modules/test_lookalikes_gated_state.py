"""Gated MLPs whose children, activation or hooks change between calls."""

import functools

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 -- as most models have it
from lookalike_bases import (
    Config,
    FunctionGLU,
    FusedGLU,
    Gated,
    GeGLU,
    SigmoidGelu,
    SwiGLU,
    forward_on_the_instance,
    global_hook,
    global_hook_that_writes,
    post_hook,
    pre_hook,
)
from lookalikes import (  # noqa: F401 -- the tests of this file
    EVENTS,
    INNER,
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
add, lookalike = CASES.add, CASES.lookalike


class MLPWithDropout(Gated):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.0)

    def forward(self, x):
        return self.down_proj(self.dropout(self.act_fn(self.gate_proj(x)) * self.up_proj(x)))


def dropout(module, patch):
    module.dropout.p = 0.5


add("dropout's p changes", MLPWithDropout, dropout)


class MLPByName(Gated):
    def __init__(self):
        super().__init__()
        self.config = Config()
        self.kind = "silu"

    def forward(self, x):
        gate = getattr(F, self.kind)(self.gate_proj(x))
        return self.down_proj(gate * self.up_proj(x))


add("activation of another name", MLPByName, setting(kind="relu"))


class MLPOfAFunction(Gated):
    def __init__(self):
        super().__init__()
        del self.act_fn
        self.act_fn = F.silu

    forward = SwiGLU.forward


def other_function(module, patch):
    module.act_fn = torch.relu


def partial_activation(module, patch):
    module.act_fn = functools.partial(F.gelu, approximate="tanh")


add("activation is a function that is replaced", MLPOfAFunction, other_function)


add("activation is a partial of another", MLPOfAFunction, partial_activation)


class MLPInAList(Gated):
    def __init__(self):
        super().__init__()
        self.table = {"silu": F.silu}
        self.steps = [self.act_fn]

    def forward(self, x):
        return self.down_proj(self.steps[0](self.gate_proj(x)) * self.up_proj(x))


def other_step(module, patch):
    module.steps[0] = nn.ReLU()


add("activation in a list", MLPInAList, other_step)


class Lora(nn.Linear):
    def forward(self, x):
        return super().forward(x) + x.mean(-1, keepdim=True)


def lora(module, patch):
    module.gate_proj = Lora(WIDTH, INNER).to(module.gate_proj.weight.dtype)


def class_of_linear(module, patch):
    module.gate_proj.__class__ = Lora


def forward_of_linear(module, patch):
    forward = module.up_proj.forward
    module.up_proj.forward = lambda x: forward(x) * 2


def hook_of_linear(module, patch):
    module.gate_proj.register_forward_hook(lambda own, args, result: result * 2)


def hook_before_down(module, patch):
    module.down_proj.register_forward_pre_hook(lambda own, args: (args[0].relu(),))


def hook_of_activation(module, patch):
    module.act_fn.register_forward_hook(lambda own, args, result: result * 2)


def backward_hook_of_activation(module, patch):
    module.act_fn.register_full_backward_hook(lambda own, given, out: (given[0] * 2,))


def hook_that_writes(module, patch):
    module.act_fn.register_forward_hook(
        lambda own, args, result: EVENTS.append(tuple(result.shape))
    )


def forward_of_activation(module, patch):
    module.act_fn.forward = torch.relu


def child(name, make):
    def change(module, patch):
        dtype = next(module.parameters()).dtype
        setattr(module, name, make().to(dtype))

    return change


def linear_weight(name, *shape):
    def change(module, patch):
        layer = getattr(module, name)
        layer.weight = nn.Parameter((draw(*shape) / 8).to(layer.weight.dtype))

    return change


def parametrized_linear(module, patch):
    class Double(nn.Module):
        def forward(self, weight):
            return 2 * weight

    parametrize.register_parametrization(module.gate_proj, "weight", Double())


def exchanged(module, patch):
    module.gate_proj, module.up_proj = module.up_proj, module.gate_proj


def tied(module, patch):
    module.up_proj = module.gate_proj


def activation_field(**values):
    return lambda module, patch: setting(**values)(module.act_fn, patch)


MLP_STATES = {
    "a layer has a subclass": lora,
    "a layer's class is replaced": class_of_linear,
    "a layer's forward is replaced": forward_of_linear,
    "a layer has a hook": hook_of_linear,
    "a hook before down": hook_before_down,
    "the activation has a hook": hook_of_activation,
    "the activation has a backward hook": backward_hook_of_activation,
    "the activation has a hook that writes": hook_that_writes,
    "the activation's forward is replaced": forward_of_activation,
    "the activation is ReLU": child("act_fn", nn.ReLU),
    "the activation is GELU": child("act_fn", nn.GELU),
    "the activation is Identity": child("act_fn", nn.Identity),
    "the activation is Softmax": child("act_fn", lambda: nn.Softmax(-1)),
    "the activation is a lookalike": child("act_fn", SigmoidGelu),
    "the activation draws numbers": child("act_fn", lambda: nn.RReLU(0.1, 0.9)),
    "the activation is None": setting(act_fn=None),
    "gate is wider": child("gate_proj", lambda: nn.Linear(WIDTH, 2 * INNER)),
    "gate is one wide": child("gate_proj", lambda: nn.Linear(WIDTH, 1)),
    "up is one wide": child("up_proj", lambda: nn.Linear(WIDTH, 1)),
    "gate has no bias": lambda module, patch: setattr(module.gate_proj, "bias", None),
    "gate is Identity": child("gate_proj", nn.Identity),
    "down is a pair": child("down_proj", lambda: nn.Sequential(nn.Linear(INNER, 8), nn.ReLU())),
    "the weight of gate has other rows": linear_weight("gate_proj", 1, WIDTH),
    "the weight of down has other rows": linear_weight("down_proj", 7, INNER),
    "a layer is parametrized": parametrized_linear,
    "gate and up are exchanged": exchanged,
    "gate and up are tied": tied,
    "gate is in float64": lambda module, patch: module.gate_proj.double(),
    "forward on the instance": forward_on_the_instance,
    "hook before": pre_hook,
    "hook after": post_hook,
    "a global hook": global_hook,
    "a global hook that writes": global_hook_that_writes,
}


for _state_name, _change in MLP_STATES.items():
    add(f"SwiGLU: {_state_name}", SwiGLU, _change, dtypes=SINGLE)


add("SwiGLU: inplace changes", SwiGLU, activation_field(inplace=True), hook_of_linear)


add("GeGLU: approximate changes", GeGLU, activation_field(approximate="none"))


OPS = {
    "dropout of zero": MLPWithDropout,
    "SwiGLU": SwiGLU,
    "GeGLU": GeGLU,
    "SwiGLU by a function": FunctionGLU,
    "fused": FusedGLU,
}

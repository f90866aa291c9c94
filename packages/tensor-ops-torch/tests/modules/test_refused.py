"""Modules that are nearly an op, or no op, and are not swapped."""

import re

import pytest
import torch
from lookalike_bases import LlamaNorm
from small_models import Fused, SwiGLU, draw
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize
from transformers.models.pocket_tts.modeling_pocket_tts import PocketTTSFlowLayerNorm

from tensor_ops_torch import restore_model, swap_modules, swap_report


class WithBias(LlamaNorm):
    def forward(self, x):
        return super().forward(x) + self.bias


class Decorated(LlamaNorm):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)


class Pickled(LlamaNorm):
    def __reduce__(self):
        return (Pickled, ())


class Attributes(LlamaNorm):
    def __getattr__(self, name):
        return super().__getattr__(name)


class Scaled(SwiGLU):
    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x) * 1.01)


class QuickGelu(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class ClippedGelu(nn.Module):
    def forward(self, x):
        return functional.gelu(x).clamp(-10, 10)


def of_activation(act):
    module = SwiGLU()
    module.act = act
    return module


def changed(module, **values):
    for name, value in values.items():
        setattr(module, name, value)
    return module


UNKNOWN = "its forward has the code of none of the known forms"
REFUSED = {
    "RMSNorm with bias": (lambda: WithBias(8), rf"{UNKNOWN}.*; trust=\[WithBias\] goes by"),
    "no gradients": (lambda: Decorated(8), "its forward is decorated"),
    "its own pickle": (lambda: Pickled(8), "says how it is pickled"),
    "its own attributes": (lambda: Attributes(8), "has attributes of its own making"),
    "two axes": (lambda: nn.LayerNorm((4, 8)), r"shape is \(4, 8\), expected one axis"),
    "weight of two axes": (
        lambda: changed(LlamaNorm(8), weight=nn.Parameter(torch.ones(4, 8))),
        r"its weight has shape \(4, 8\), expected one axis",
    ),
    "eps of a tensor": (
        lambda: changed(LlamaNorm(8), eps=torch.tensor(1e-6)),
        "its eps is of type Tensor",
    ),
    "float8": (lambda: nn.LayerNorm(8).to(torch.float8_e4m3fn), "float8_e4m3fn, expected one of"),
    "SiLU in place": (lambda: nn.SiLU(inplace=True), "inplace=True"),
    "QuickGELU": (QuickGelu, "it computes quick_gelu, which no op of tensor_ops does"),
    "clipped": (ClippedGelu, UNKNOWN),
    "scaled": (Scaled, rf"{UNKNOWN} \(the nearest is IdeficsMLP\)"),
    "an activation in place": (
        lambda: of_activation(nn.SiLU(inplace=True)),
        "its activation act cannot be swapped: its forward writes to its input",
    ),
    "another activation": (
        lambda: of_activation(nn.ReLU()),
        "its activation act cannot be swapped: no op computes it",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, reason = REFUSED[name]
    module = make()
    kind, fields = type(module), dict(vars(module))
    entry = swap_modules(module).entries[0]
    assert type(module) is kind
    assert vars(module) == fields
    assert not entry.swapped
    assert (entry.name, entry.class_name) == ("", kind.__name__)
    assert re.search(reason, entry.reason), entry.reason


def test_half_types_that_round_at_every_step_are_refused():
    """In bfloat16 a row minus its rounded mean is off by more than a row minus its mean."""
    assert swap_report(PocketTTSFlowLayerNorm(64, 1e-6)).entries[0].reason is None
    module = PocketTTSFlowLayerNorm(64, 1e-6).bfloat16()
    reason = swap_report(module).entries[0].reason
    assert reason.startswith("compared with layer_norm in bfloat16, its result differs")


def test_a_forward_of_the_instance():
    """Hooks of accelerate set one."""
    module = nn.SiLU()
    own = module.forward
    module.forward = lambda x: own(x) + 0
    entry = swap_modules(module).entries[0]
    assert "forward was replaced on the instance" in entry.reason


def test_parametrized_before_the_swap():
    module = nn.LayerNorm(8)
    parametrize.register_parametrization(module, "weight", nn.Softplus())
    assert swap_report(module).entries[0].reason == "its weight is parametrized; swap before it is"


@pytest.mark.parametrize(
    "module",
    [
        *(nn.ReLU(), nn.Mish(), nn.ELU(), nn.Hardswish(), nn.Dropout(), nn.Identity()),
        *(nn.Linear(8, 8), nn.Embedding(8, 8), nn.Conv1d(8, 8, 1), nn.BatchNorm1d(8)),
        *(nn.GroupNorm(2, 8), nn.PReLU(), nn.Softmax(1), nn.MultiheadAttention(8, 2)),
        nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)),
    ],
    ids=lambda module: type(module).__name__,
)
def test_what_is_no_op_is_not_in_the_report(module):
    assert not swap_report(module).entries


def test_attention_is_no_mlp():
    """Three linear layers, called with the same input."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

        def forward(self, x):
            return functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x))

    assert not swap_report(Attention()).entries


def test_models_on_the_meta_device_are_swapped_before_their_weights_are_loaded():
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(24, 24), Fused(), nn.LayerNorm(24))
    assert swap_modules(module, strict=True).counts == {"silu_mul": 1, "silu": 1, "layer_norm": 1}
    module.to_empty(device="cpu")
    for each in module.parameters():
        nn.init.normal_(each)
    x = draw(3, 24)
    found = module(x)
    torch.testing.assert_close(found, restore_model(module)(x), rtol=1e-5, atol=1e-5)

"""Modules that are nearly an op, or no op, and are not swapped."""

import re

import pytest
import torch
from small_models import Fused, Gated, HandMadeLayerNorm, Norm, draw
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize

from tensor_ops_torch import restore_model, swap_modules, swap_report


class EpsOutside(Norm):
    def forward(self, x):
        return self.weight * x / (x.square().mean(-1, keepdim=True).sqrt() + self.epsilon)


class EpsAsMaximum(Norm):
    def forward(self, x):
        return self.weight * x / x.square().mean(-1, keepdim=True).clamp(min=self.epsilon).sqrt()


class Unbiased(Norm):
    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        variance = x.square().sum(-1, keepdim=True) / (x.shape[-1] - 1)
        return self.weight * x * torch.rsqrt(variance + self.epsilon)


class Length(Norm):
    def forward(self, x):
        return self.weight * functional.normalize(x, dim=-1)


class Partial(Norm):
    """The mean of the squares of a part of the row, as in pRMSNorm."""

    def forward(self, x):
        return self.weight * x * self.inverse(x[..., : x.shape[-1] // 2])


class ConstantStatistics(Norm):
    """The same results, other gradients."""

    def forward(self, x):
        return self.weight * x * self.inverse(x).detach()


class WithoutGradients(Norm):
    @torch.no_grad()
    def forward(self, x):
        return self.weight * x * self.inverse(x)


class NoisyInTraining(Norm):
    def forward(self, x):
        y = self.weight * x * self.inverse(x)
        return y + 0.01 * torch.randn_like(y) if self.training else y


class WithBias(Norm):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(64))

    def forward(self, x):
        return self.weight * x * self.inverse(x) + self.bias


class WithScale(Norm):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.weight * x * self.inverse(x) * self.scale


class WithBuffer(Norm):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return self.weight * x * self.inverse(x)


class TwoInputs(Norm):
    def forward(self, x, gate):
        return self.weight * x * self.inverse(x) * gate


class Absolute(Norm):
    def forward(self, x):
        return self.weight.abs() * x * self.inverse(x)


class InPlace(Norm):
    def forward(self, x):
        return x.mul_(self.inverse(x)).mul_(self.weight)


class Pickled(Norm):
    def forward(self, x):
        return self.weight * x * self.inverse(x)

    def __reduce__(self):
        return (Pickled, ())


class QuickGelu(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class ClippedGelu(nn.Module):
    def forward(self, x):
        return functional.gelu(x).clamp(-10, 10)


class StraightThrough(nn.Module):
    def forward(self, x):
        return x + (functional.silu(x) - x).detach()


class Dropped(Gated):
    def __init__(self):
        super().__init__()
        self.act, self.dropout = nn.SiLU(), nn.Dropout(0.1)

    def forward(self, x):
        return self.w2(self.dropout(self.act(self.w1(x)) * self.w3(x)))


class DroppedWithoutModule(Gated):
    def __init__(self):
        super().__init__()
        self.act = nn.SiLU()

    def forward(self, x):
        hidden = self.act(self.w1(x)) * self.w3(x)
        return self.w2(functional.dropout(hidden, 0.1, self.training))


class Scaled(Gated):
    def __init__(self):
        super().__init__()
        self.act = nn.SiLU()

    def forward(self, x):
        return self.w2(self.act(self.w1(x)) * self.w3(x) * 1.01)


class Residual(Scaled):
    def forward(self, x):
        return x + self.w2(self.act(self.w1(x)) * self.w3(x))


class Clamped(Scaled):
    """As in gpt-oss: a bound on the gate."""

    def forward(self, x):
        return self.w2(self.act(self.w1(x).clamp(max=7)) * self.w3(x))


class SlicedWeights(Scaled):
    """As Llama once did for tensor parallelism: the linear layers are not called."""

    def forward(self, x):
        hidden = self.act(functional.linear(x, self.w1.weight)) * self.w3(x)
        return self.w2(hidden)


class HeldFunction(Gated):
    def __init__(self):
        super().__init__()
        self.hidden_act = functional.silu

    def forward(self, x):
        return self.w2(self.hidden_act(self.w1(x)) * self.w3(x))


class OtherActivation(Gated):
    """The one that it holds is not the one it calls."""

    def __init__(self):
        super().__init__()
        self.act = nn.GELU()

    def forward(self, x):
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class InPlaceActivation(Scaled):
    def __init__(self):
        super().__init__()
        self.act = nn.SiLU(inplace=True)

    def forward(self, x):
        return self.w2(self.act(self.w1(x)) * self.w3(x))


REFUSED = {
    "eps outside of the root": (EpsOutside, r"it computes .* which no op of tensor_ops does"),
    "eps as a maximum": (EpsAsMaximum, "its forward uses clamp of a tensor, which is no part"),
    "unbiased variance": (Unbiased, r"it computes .* which no op of tensor_ops does"),
    "divided by the length": (Length, "its forward uses normalize, which is no part of an op"),
    "half of the row": (Partial, "its forward takes elements"),
    "constant statistics": (ConstantStatistics, "its forward uses detach of a tensor"),
    "no gradients": (WithoutGradients, "its forward is decorated"),
    "noise": (NoisyInTraining, r"depends on train\(\) and eval\(\)"),
    "RMSNorm with bias": (WithBias, r"it computes .* \+ self.bias\), which no op"),
    "another parameter": (WithScale, r"uses scale of shape \(\), expected one axis"),
    "a buffer": (WithBuffer, "its forward writes to a tensor in place"),
    "two inputs": (TwoInputs, "its forward takes more than one tensor: gate"),
    "absolute weights": (Absolute, "its forward uses abs of a tensor"),
    "in place": (InPlace, "its forward uses mul_ of a tensor"),
    "its own pickle": (Pickled, "says how it is pickled"),
    "two axes": (lambda: nn.LayerNorm((4, 8)), r"weight of shape \(4, 8\), expected one axis"),
    "float8": (lambda: nn.LayerNorm(8).to(torch.float8_e4m3fn), "float8_e4m3fn, expected one of"),
    "SiLU in place": (lambda: nn.SiLU(inplace=True), "inplace=True"),
    "QuickGELU": (QuickGelu, "it computes quick_gelu, which no op of tensor_ops does"),
    "clipped": (ClippedGelu, "its forward uses clamp of a tensor"),
    "straight-through": (StraightThrough, "its forward uses detach of a tensor"),
    "dropout by function": (DroppedWithoutModule, "its forward uses dropout"),
    "scaled": (Scaled, r"it computes call w2\(1.01 \* .*, which no op of tensor_ops does"),
    "residual": (Residual, r"it computes \(call w2\(.*\) \+ x\), which no op"),
    "clamped": (Clamped, "its forward uses clamp of a tensor"),
    "weights without calls": (SlicedWeights, "its forward uses linear, which is no part of an op"),
    "an activation in place": (InPlaceActivation, "activation act cannot be swapped: its forward"),
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
    assert swap_report(HandMadeLayerNorm()).entries[0].reason is None
    reason = swap_report(HandMadeLayerNorm().bfloat16()).entries[0].reason
    assert reason.startswith("compared with layer_norm in bfloat16, its result differs")


def test_a_forward_of_the_instance():
    """What hooks of accelerate do."""
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

"""What is recognised, and what is not: by what a module computes, never by its name."""

import copy
import functools
import re

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize

from tensor_ops_torch import restore_model, swap_modules, swap_report

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


class Norm(nn.Module):
    """The parameters of an RMSNorm; what it computes is up to its subclasses."""

    def __init__(self, n=64, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.epsilon = eps

    def inverse(self, x):
        return torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon)


class LlamaOrder(Norm):
    def forward(self, x):
        y = x.float() * self.inverse(x.float())
        return self.weight * y.to(x.dtype)


class GemmaOrder(Norm):
    def forward(self, x):
        return (x.float() * self.inverse(x.float()) * (1 + self.weight.float())).to(x.dtype)


class WeightInFloat32(Norm):
    def forward(self, x):
        return (x.float() * self.inverse(x.float()) * self.weight.float()).to(x.dtype)


class ByFunction(Norm):
    def forward(self, x):
        return functional.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class ByNorm(Norm):
    def forward(self, x):
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return self.weight * x / torch.sqrt(length.square() / x.shape[-1] + self.epsilon)


class FixedEps(Norm):
    def __init__(self, n=64):
        super().__init__(n, eps=1e-5)
        del self.epsilon

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


class HandMadeLayerNorm(Norm):
    def __init__(self, n=64):
        super().__init__(n, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(n))

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return x * self.inverse(x) * self.weight + self.bias


NORMS = {
    "Llama's order": (LlamaOrder, "rms_norm"),
    "Gemma's order": (GemmaOrder, "rms_norm"),
    "weight in float32": (WeightInFloat32, "rms_norm"),
    "torch's function": (ByFunction, "rms_norm"),
    "vector_norm": (ByNorm, "rms_norm"),
    "eps in forward": (FixedEps, "rms_norm"),
    "no mean": (lambda: nn.RMSNorm(64, eps=1e-3), "rms_norm"),
    "eps of None": (lambda: nn.RMSNorm(64), "rms_norm"),
    "layer norm": (lambda: nn.LayerNorm(64), "layer_norm"),
    "layer norm without bias": (lambda: nn.LayerNorm(64, bias=False), "layer_norm"),
    "BERT's eps": (lambda: nn.LayerNorm(64, eps=1e-12), "layer_norm"),
    "layer norm by hand": (HandMadeLayerNorm, "layer_norm"),
    "short rows": (lambda: LlamaOrder(2), "rms_norm"),
    "long rows": (lambda: nn.LayerNorm(5000), "layer_norm"),
}


def draw(*shape, dtype=torch.float32, scale=1.0):
    generator = torch.Generator().manual_seed(3)
    return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype)


@pytest.mark.parametrize("name", NORMS)
def test_norms(name):
    make, op = NORMS[name]
    module = make()
    with torch.no_grad():
        for each in module.parameters():
            each.copy_(draw(each.numel()) / 2 + 0.5)
    reference = copy.deepcopy(module)
    assert swap_modules(module, strict=True).counts == {op: 1}
    n = module.weight.numel()
    for scale in (1.0, 1e3, 1e-3, 1e-6):
        x = draw(4, n, scale=scale)
        torch.testing.assert_close(module(x), reference(x), rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [n for n in NORMS if n not in ("vector_norm", "eps in forward")])
def test_norms_in_their_own_dtype(name, dtype):
    """Swapped or refused, a result differs by 2 ULP of each of the two at most."""
    module = NORMS[name][0]().to(dtype)
    reference = copy.deepcopy(module)
    report = swap_modules(module)
    x = draw(16, module.weight.numel(), dtype=dtype)
    found, wanted = module(x), reference(x)
    assert found.dtype == wanted.dtype
    ulp = torch.finfo(dtype).eps
    tolerance = {2: 4 * ulp, 4: 4e-6, 8: 1e-7 if report.refused else 1e-6}[dtype.itemsize]
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    if dtype.itemsize == 2 and name != "layer norm by hand":
        assert report.counts


class Functional(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


class TanhGelu(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


ACTIVATIONS = {
    "SiLU": (nn.SiLU(), "silu"),
    "GELU": (nn.GELU(), "gelu"),
    "GELU, tanh": (nn.GELU("tanh"), "gelu"),
    "x * sigmoid(x)": (Swish(), "silu"),
    "tanh by hand": (TanhGelu(), "gelu"),
    "functional": (Functional(functional.silu), "silu"),
    "partial": (Functional(functools.partial(functional.gelu, approximate="tanh")), "gelu"),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name, dtype):
    module, op = ACTIVATIONS[name]
    module = copy.deepcopy(module)
    x = torch.cat((torch.linspace(-9, 9, 999), torch.tensor([1e4, -1e4, 0, 1e-3]))).to(dtype)
    wanted = module(x)
    assert swap_modules(module, strict=True).counts == {op: 1}
    # torch's own half kernels are within one ULP, and the hand-made ones run as they are.
    ulp = torch.finfo(dtype).eps
    torch.testing.assert_close(module(x), wanted, rtol=max(2 * ulp, 3e-6), atol=1e-6)


def test_an_activation_that_rounds_at_every_step_keeps_doing_so_in_half_types():
    """It is tens of ULP off; to replace it would change results, if only for the better."""
    module, x = TanhGelu(), torch.linspace(-4, 0, 99).bfloat16()
    wanted = module(x)
    assert (wanted.float() - functional.gelu(x.float(), approximate="tanh")).abs().max() > 1e-3
    swap_modules(module, strict=True)
    assert torch.equal(module(x), wanted)


class Gated(nn.Module):
    """Whatever its names are."""

    def __init__(self, function=functional.silu, hidden=24, inner=40, bias=False):
        super().__init__()
        self.w1 = nn.Linear(hidden, inner, bias=bias)
        self.w2 = nn.Linear(inner, hidden, bias=bias)
        self.w3 = nn.Linear(hidden, inner, bias=bias)
        type(self).function = staticmethod(function)

    def forward(self, x):
        return self.w2(self.function(self.w1(x)) * self.w3(x))


class UpFirst(Gated):
    def forward(self, x):
        return self.w2(self.w3(x) * self.function(self.w1(x)))


class Fused(nn.Module):
    def __init__(self, hidden=24, inner=40, gate_first=True, activation=nn.SiLU):
        super().__init__()
        self.wide = nn.Linear(hidden, 2 * inner)
        self.narrow = nn.Linear(inner, hidden)
        self.activation = activation()
        self.gate_first = gate_first

    def forward(self, x):
        first, second = self.wide(x).chunk(2, dim=-1)
        if self.gate_first:
            return self.narrow(self.activation(first) * second)
        return self.narrow(first * self.activation(second))


tanh_gelu = functools.partial(functional.gelu, approximate="tanh")
MLPS = {
    "SwiGLU": (Gated, "silu_mul"),
    "with biases": (lambda: Gated(bias=True), "silu_mul"),
    "up first": (UpFirst, "silu_mul"),
    "square": (lambda: Gated(hidden=32, inner=32), "silu_mul"),
    "GeGLU": (lambda: Gated(functional.gelu), "gelu_mul"),
    "GeGLU, tanh": (lambda: Gated(tanh_gelu), "gelu_mul"),
    "fused": (Fused, "silu_mul"),
    "fused, up first": (lambda: Fused(gate_first=False), "silu_mul"),
    "fused GeGLU": (lambda: Fused(activation=nn.GELU), "gelu_mul"),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MLPS)
def test_gated_mlps(name, dtype):
    make, op = MLPS[name]
    torch.manual_seed(0)
    module = make().to(dtype)
    reference = copy.deepcopy(module)
    assert swap_modules(module, strict=True).counts[op] == 1
    x = draw(5, module(torch.zeros(1, _width(module), dtype=dtype)).shape[-1], dtype=dtype)
    found, wanted = module(x), reference(x)
    ulp = torch.finfo(dtype).eps
    torch.testing.assert_close(found, wanted, rtol=8 * ulp, atol=8 * ulp)
    found.square().sum().backward()
    wanted.square().sum().backward()
    for own, other in zip(module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=64 * ulp, atol=64 * ulp)


def _width(module):
    return next(each for each in module.modules() if isinstance(each, nn.Linear)).in_features


# Lookalikes


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

"""What is recognised, and what is not: by what a module computes, never by its name."""

import copy
import functools

import pytest
import torch
from small_models import Fused, Gated, HandMadeLayerNorm, Norm, draw
from torch import nn
from torch.nn import functional

from tensor_ops_torch import swap_modules

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


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


class UpFirst(Gated):
    def forward(self, x):
        return self.w2(self.w3(x) * self.function(self.w1(x)))


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

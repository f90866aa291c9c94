"""Models and modules that several of these tests swap."""

import torch
from torch import nn
from torch.nn import functional


class SwiGLU(nn.Module):
    def __init__(self, hidden=16, inner=48):
        super().__init__()
        self.gate = nn.Linear(hidden, inner)
        self.up = nn.Linear(hidden, inner)
        self.act = nn.SiLU()
        self.down = nn.Linear(inner, hidden)

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


class GemmaNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-0.5, 0.5, n))
        self.eps = 1e-6

    def forward(self, x):
        y = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)
        return (y * (1.0 + self.weight.float())).type_as(x)


def make_model():
    torch.manual_seed(0)
    layers = (nn.RMSNorm(16, eps=1e-6), SwiGLU(), nn.LayerNorm(16), GemmaNorm(16), nn.GELU("tanh"))
    model = nn.Sequential(*layers)
    # The same module once more.
    model.tied = model[0]
    return model


COUNTS = {"rms_norm": 2, "silu_mul": 1, "silu": 1, "layer_norm": 1, "gelu": 1}


class Norm(nn.Module):
    """The parameters of an RMSNorm; what it computes is up to its subclasses."""

    def __init__(self, n=64, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.epsilon = eps

    def inverse(self, x):
        return torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon)


class HandMadeLayerNorm(Norm):
    def __init__(self, n=64):
        super().__init__(n, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(n))

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return x * self.inverse(x) * self.weight + self.bias


def draw(*shape, dtype=torch.float32, scale=1.0):
    generator = torch.Generator().manual_seed(3)
    return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype)


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

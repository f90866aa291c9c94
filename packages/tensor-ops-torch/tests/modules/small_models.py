"""Models and modules that several of these tests swap."""

import torch
from torch import nn


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

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        y = self._norm(x.float())
        y = y * (1.0 + self.weight.float())
        return y.type_as(x)


def make_model():
    torch.manual_seed(0)
    layers = (nn.RMSNorm(16, eps=1e-6), SwiGLU(), nn.LayerNorm(16), GemmaNorm(16), nn.GELU("tanh"))
    model = nn.Sequential(*layers)
    # The same module once more.
    model.tied = model[0]
    return model


COUNTS = {"rms_norm": 2, "silu_mul": 1, "silu": 1, "layer_norm": 1, "gelu": 1}


def draw(*shape, dtype=torch.float32, scale=1.0):
    generator = torch.Generator().manual_seed(3)
    return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype)


class Fused(nn.Module):
    def __init__(self, hidden=24, inner=40, activation=nn.SiLU):
        super().__init__()
        self.wide = nn.Linear(hidden, 2 * inner)
        self.narrow = nn.Linear(inner, hidden)
        self.activation = activation()

    def forward(self, x):
        up = self.wide(x)
        gate, up = up.chunk(2, dim=-1)
        up = up * self.activation(gate)
        return self.narrow(up)

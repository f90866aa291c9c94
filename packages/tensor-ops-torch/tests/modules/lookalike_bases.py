"""The modules that lookalikes resemble, and changes that many of them go through."""

import torch
import torch.nn.functional as F  # noqa: N812 -- as most models have it
from lookalikes import EVENTS, INNER, WIDTH, of
from torch import nn


class Norm(nn.Module):
    """An RMSNorm as most models write it, in parts that lookalikes replace."""

    def __init__(self, n=WIDTH, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(1 + torch.randn(n) / 2)
        self.eps = eps


class LlamaNorm(Norm):
    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x.to(dtype)


class GemmaNorm(Norm):
    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        y = self._norm(x.float())
        y = y * (1.0 + self.weight.float())
        return y.type_as(x)


class Activation(nn.Module):
    """A module without parameters."""


class Gated(nn.Module):
    def __init__(self, hidden=WIDTH, inner=INNER, bias=True):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=bias)
        self.up_proj = nn.Linear(hidden, inner, bias=bias)
        self.down_proj = nn.Linear(inner, hidden, bias=bias)
        self.act_fn = nn.SiLU()


class SwiGLU(Gated):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class GeGLU(Gated):
    def __init__(self):
        super().__init__()
        self.act_fn = nn.GELU("tanh")

    forward = SwiGLU.forward


class FunctionGLU(Gated):
    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Wide(nn.Module):
    def __init__(self, hidden=WIDTH, inner=INNER):
        super().__init__()
        self.wide = nn.Linear(hidden, 2 * inner)
        self.narrow = nn.Linear(inner, hidden)
        self.act = nn.SiLU()


class FusedGLU(Wide):
    def forward(self, x):
        gate, up = self.wide(x).chunk(2, dim=-1)
        return self.narrow(self.act(gate) * up)


for _base, _op in {
    Norm: LlamaNorm,
    Gated: SwiGLU,
    Wide: FusedGLU,
}.items():
    _base.like = _op


def drawn(make):
    """Let the weight and bias of a norm of PyTorch be drawn, not ones and zeros."""

    def draw_them():
        module = make()
        with torch.no_grad():
            for each in module.parameters():
                each.copy_(torch.randn(each.shape) / 2 + 0.5)
        return module

    return draw_them


TorchRMSNorm = drawn(lambda: nn.RMSNorm(WIDTH, eps=1e-5))


TorchLayerNorm = drawn(lambda: nn.LayerNorm(WIDTH))


small = of(4, WIDTH, scale=3e-3)


def forward_on_the_instance(module, patch):
    module.forward = lambda x: x + 1


def plus_one(self, x):
    return x + 1


def pre_hook(module, patch):
    module.register_forward_pre_hook(lambda module, args: (args[0] * 2,))


def post_hook(module, patch):
    module.register_forward_hook(lambda module, args, result: result + args[0])


class Config:
    eps = 1e-5
    activation = "silu"


def global_hook(module, patch):
    """Doubles what every SiLU returns, wherever it is."""

    def double(own, args, result):
        return result * 2 if isinstance(own, nn.SiLU) else None

    hooks = torch.nn.modules.module._global_forward_hooks
    patch.setitem(hooks, -1, double)


def global_hook_that_writes(module, patch):
    def write(own, args, result):
        EVENTS.append(isinstance(own, nn.SiLU))

    hooks = torch.nn.modules.module._global_forward_hooks
    patch.setitem(hooks, -1, write)


class SigmoidGelu(Activation):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)

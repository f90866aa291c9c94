"""Modules that compute an op in other words."""

import math
import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 -- as most models have it
from lookalike_bases import Activation, Gated, HandLayerNorm, LlamaNorm, Norm, Wide, by_hand
from lookalikes import (  # noqa: F401 -- the tests of this file
    INNER,
    WIDTH,
    test_an_op_in_other_words_does_what_its_own_forward_does,
)
from torch import nn

pytestmark = pytest.mark.usefixtures("one_thread")


class WeightToTheFirst(Norm):
    def forward(self, x):
        return self.weight**1 * by_hand(x.float(), self.eps).to(x.dtype)


class OtherDocstring(LlamaNorm):
    """Only what it says of itself is another."""

    def forward(self, x):
        """Return something, as they say."""
        y = x.to(torch.float32)
        variance = y.pow(2).mean(-1, keepdim=True)
        y = y * torch.rsqrt(variance + self.eps)
        return self.weight * y.to(x.dtype)


class OnlySuper(LlamaNorm):
    def forward(self, x):
        return super().forward(x)


class Renamed(nn.Module):
    def __init__(self):
        super().__init__()
        self.g = nn.Parameter(torch.randn(WIDTH))
        self.e = 1e-6

    def forward(self, hidden_states):
        return self.g * by_hand(hidden_states.float(), self.e).to(hidden_states.dtype)


class ByMultiplication(Norm):
    def forward(self, x):
        return x * (x * x).mean(dim=-1, keepdim=True).add(self.eps).rsqrt() * self.weight


class ByNegativePower(Norm):
    def forward(self, x):
        return self.weight * x * torch.pow(torch.mean(x**2, -1, True) + self.eps, -0.5)


class ByReciprocal(Norm):
    def forward(self, x):
        return self.weight * x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt()


class BySum(Norm):
    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).sum(-1, True) / x.size(-1) + self.eps)


class ByVectorNorm(Norm):
    def forward(self, x):
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return self.weight * x / torch.sqrt(length.square() / x.shape[-1] + self.eps)


class ByVariance(HandLayerNorm):
    def forward(self, x):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        return (x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias


class ByVarMean(HandLayerNorm):
    def forward(self, x):
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


class ByAddcmul(HandLayerNorm):
    def forward(self, x):
        return torch.addcmul(self.bias, self.weight, F.layer_norm(x, (x.size(-1),), eps=self.eps))


class SwishByDivision(Activation):
    def forward(self, x):
        return x / (1 + torch.exp(-x))


class SwishByMethod(Activation):
    def forward(self, x):
        return x.sigmoid().mul(x)


class GeluByErf(Activation):
    def forward(self, x):
        return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class GeluByOperators(Activation):
    def forward(self, x):
        return operator.mul(x, 0.5 * (1.0 + torch.erf(x * 0.7071067811865476)))


class SoftmaxByHand(Activation):
    def forward(self, x):
        y = torch.exp(x - x.amax(-1, keepdim=True))
        return y / y.sum(-1, keepdim=True)


class SoftmaxCast(Activation):
    def forward(self, x):
        return F.softmax(x, dim=-1, dtype=torch.float32).to(x.dtype)


class UpByGate(Gated):
    def forward(self, x):
        up = self.up_proj(x)
        return self.down_proj(up * self.act_fn(self.gate_proj(x)))


class InSteps(Gated):
    def forward(self, hidden):
        gate = self.gate_proj(hidden)
        gate = self.act_fn(gate)
        product = torch.mul(gate, self.up_proj(hidden))
        del gate
        hidden = self.down_proj(product)
        return hidden  # noqa: RET504 -- as it is often written


class BySplit(Wide):
    def forward(self, x):
        gate, up = torch.split(self.wide(x), INNER, dim=-1)
        return self.narrow(F.silu(gate) * up)


class BySlices(Wide):
    def forward(self, x):
        y = self.wide(x)
        half = y.shape[-1] // 2
        return self.narrow(F.silu(y[..., :half]) * y[..., half:])


OPS = {
    "weight to the first power": WeightToTheFirst,
    "docstring": OtherDocstring,
    "only super": OnlySuper,
    "names": Renamed,
    "multiplication": ByMultiplication,
    "negative power": ByNegativePower,
    "reciprocal": ByReciprocal,
    "sum": BySum,
    "vector norm": ByVectorNorm,
    "variance": ByVariance,
    "var_mean": ByVarMean,
    "addcmul": ByAddcmul,
    "division by an exponential": SwishByDivision,
    "methods of a tensor": SwishByMethod,
    "erf": GeluByErf,
    "operators": GeluByOperators,
    "softmax by hand": SoftmaxByHand,
    "softmax in float32": SoftmaxCast,
    "up times gate": UpByGate,
    "steps": InSteps,
    "split": BySplit,
    "slices": BySlices,
}

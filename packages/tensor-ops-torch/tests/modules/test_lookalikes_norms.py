"""Modules whose formula is nearly that of RMSNorm."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 -- as most models have it
from lookalike_bases import (
    Norm,
    PlainNorm,
    SumInsteadOfMean,
    by_hand,
    small,
)
from lookalikes import (  # noqa: F401 -- the tests of this file
    RARE,
    WIDTH,
    Lookalikes,
    infinities,
    of,
    rare,
    test_a_lookalike_does_what_its_own_forward_does,
    test_a_lookalike_is_not_the_op,
)

pytestmark = pytest.mark.usefixtures("one_thread")
CASES = Lookalikes()
add, lookalike = CASES.add, CASES.lookalike


@lookalike(inputs=small)
class EpsOutsideTheRoot(Norm):
    def forward(self, x):
        y = x.float()
        y = y / (y.pow(2).mean(-1, keepdim=True).sqrt() + self.eps)
        return self.weight * y.to(x.dtype)


@lookalike(inputs=small)
class EpsAddedToTheNorm(Norm):
    def forward(self, x):
        return self.weight * x / (x.norm(dim=-1, keepdim=True) + self.eps) * x.shape[-1] ** 0.5


@lookalike(inputs=small)
class EpsSquared(Norm):
    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps**2)


@lookalike(inputs=small)
class EpsTimesWidth(Norm):
    def forward(self, x):
        return self.weight * x * (x.shape[-1] / (x.square().sum(-1, True) + self.eps)).sqrt()


@lookalike(inputs=small)
class EpsTwice(Norm):
    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps + self.eps)
        return self.weight * y.to(x.dtype)


@lookalike(inputs=small)
class EpsAsLowerBound(Norm):
    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True).clamp(min=self.eps))
        return self.weight * y.to(x.dtype)


@lookalike(inputs=small)
class EpsInsideTheMean(Norm):
    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt((y + self.eps).pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * (y + self.eps).to(x.dtype)


lookalike()(SumInsteadOfMean)


@lookalike()
class OneLessThanTheWidth(Norm):
    def forward(self, x):
        y = x.float()
        variance = y.pow(2).sum(-1, keepdim=True) / (x.shape[-1] - 1)
        return self.weight * (y * torch.rsqrt(variance + self.eps)).to(x.dtype)


@lookalike()
class WidthWrittenDown(Norm):
    """Its weight makes 64 numbers of a row of one."""

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) / 64 + self.eps)


@lookalike()
class MeanOfMagnitudes(Norm):
    def forward(self, x):
        return self.weight * x / (x.abs().mean(-1, keepdim=True) + self.eps)


@lookalike()
class LargestInsteadOfMean(Norm):
    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).amax(-1, keepdim=True) + self.eps)


@lookalike()
class MeanOverRows(Norm):
    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + self.eps)


@lookalike()
class MeanOverTheSecondAxis(Norm):
    """It is the op for inputs of two axes."""

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + self.eps)


@lookalike()
class MeanOverTwoAxes(Norm):
    """It is the op for a single row."""

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean((-2, -1), keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


@lookalike()
class MeanOverAllButTheFirst(Norm):
    def forward(self, x):
        return F.layer_norm(x, x.shape[1:], None, None, self.eps) * self.weight


@lookalike(inputs=of(WIDTH, WIDTH))
class WithoutKeepdim(Norm):
    """It is the op for one axis, and broadcasts the wrong way for as many rows as columns."""

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1) + self.eps)


@lookalike(inputs=of(1, WIDTH))
class StatisticsOfTheFirstRow(Norm):
    def forward(self, x):
        return self.weight * x * torch.rsqrt(x[:1].pow(2).mean(-1, keepdim=True) + self.eps)


@lookalike()
class StatisticsOfAPart(Norm):
    def forward(self, x):
        part = x[..., : x.shape[-1] - 1]
        return self.weight * x * torch.rsqrt(part.pow(2).mean(-1, keepdim=True) + self.eps)


@lookalike()
class WeightBeforeNormalising(Norm):
    def forward(self, x):
        y = self.weight * x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


@lookalike()
class WeightSquared(Norm):
    def forward(self, x):
        return self.weight**2 * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class MagnitudeOfWeight(Norm):
    def forward(self, x):
        return self.weight.abs() * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class WeightReversed(Norm):
    def forward(self, x):
        return self.weight.flip(0) * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class OneMinusWeight(Norm):
    def forward(self, x):
        return (1.0 - self.weight.float()) * by_hand(x.float(), self.eps)


@lookalike()
class TwoPlusWeight(Norm):
    def forward(self, x):
        return ((2.0 + self.weight.float()) * by_hand(x.float(), self.eps)).to(x.dtype)


@lookalike()
class WeightClamped(Norm):
    def forward(self, x):
        return self.weight.clamp(-1.5, 1.5) * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class DividedByWeight(Norm):
    def forward(self, x):
        return by_hand(x, self.eps) / self.weight


@lookalike()
class ResidualAdded(Norm):
    def forward(self, x):
        return x + self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class RootOfWidthTwice(Norm):
    def forward(self, x):
        return self.weight * F.normalize(x, dim=-1) * x.shape[-1] ** 0.5 * x.shape[-1] ** 0.5


@lookalike(inputs=small)
class NormalizeTimesRoot(Norm):
    """Its eps bounds the norm from below, and is not added."""

    def forward(self, x):
        return F.normalize(x, dim=-1, eps=self.eps) * math.sqrt(x.shape[-1]) * self.weight


@lookalike(inputs=of(4, WIDTH, scale=1e3))
class InputClamped(Norm):
    def forward(self, x):
        return self.weight * by_hand(x.float().clamp(-500, 500), self.eps).to(x.dtype)


@lookalike(inputs=infinities)
class NotFiniteReplaced(Norm):
    def forward(self, x):
        return self.weight * by_hand(torch.nan_to_num(x.float()), self.eps).to(x.dtype)


@lookalike(inputs=infinities)
class ResultNotFiniteReplaced(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return torch.where(torch.isfinite(y), y, torch.zeros_like(y))


@lookalike(inputs=rare)
class WhereRare(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return torch.where(x == RARE, x, y)


@lookalike()
class HalfInBetween(Norm):
    def forward(self, x):
        y = by_hand(x.to(torch.float16).to(torch.float32), self.eps)
        return self.weight * y.to(x.dtype)


@lookalike(dtypes=(torch.float32, torch.float64))
class RoundedInBetween(Norm):
    def forward(self, x):
        return self.weight * by_hand(x.float(), self.eps).bfloat16().to(x.dtype)


@lookalike()
class IntegersInBetween(Norm):
    def forward(self, x):
        return self.weight * by_hand(x.int().float(), self.eps).to(x.dtype)


@lookalike(dtypes=(torch.float16, torch.bfloat16))
class ResultInFloat32(Norm):
    def forward(self, x):
        return self.weight.float() * by_hand(x.float(), self.eps)


@lookalike(dtypes=(torch.float64,), inputs=of(3, WIDTH, scale=1e200))
class Float32InBetween(Norm):
    """Numbers of float64 that float32 lacks become infinite."""

    def forward(self, x):
        return self.weight * by_hand(x.to(torch.float32), self.eps).to(x.dtype)

    like = PlainNorm


@lookalike(dtypes=(torch.float16,), inputs=of(3, WIDTH, scale=400))
class SquaresOverflow(Norm):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


@lookalike()
class StatisticsDetached(Norm):
    def forward(self, x):
        y = x.float()
        inverse = torch.rsqrt(y.detach().pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * (y * inverse).to(x.dtype)


@lookalike()
class WeightDetached(Norm):
    def forward(self, x):
        return self.weight.detach() * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class InputDetached(Norm):
    def forward(self, x):
        return self.weight * by_hand(x.detach().float(), self.eps).to(x.dtype)


@lookalike()
class WeightData(Norm):
    def forward(self, x):
        return self.weight.data * by_hand(x.float(), self.eps).to(x.dtype)

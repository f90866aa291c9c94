"""Modules whose formula is nearly that of LayerNorm."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 -- as most models have it
from lookalike_bases import (
    HandLayerNorm,
    TorchLayerNorm,
    small,
)
from lookalikes import (  # noqa: F401 -- the tests of this file
    WIDTH,
    Lookalikes,
    of,
    test_a_lookalike_does_what_its_own_forward_does,
    test_a_lookalike_is_not_the_op,
)
from torch import nn

pytestmark = pytest.mark.usefixtures("one_thread")
CASES = Lookalikes()
add, lookalike = CASES.add, CASES.lookalike


class Centred(HandLayerNorm):
    like = HandLayerNorm


@lookalike()
class UnbiasedVariance(Centred):
    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = x.var(-1, keepdim=True)
        return self.weight * ((x - u) / torch.sqrt(s + self.eps)) + self.bias


@lookalike(inputs=small)
class EpsAddedToDeviation(Centred):
    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = x.std(-1, keepdim=True, unbiased=False)
        return self.weight * ((x - u) / (s + self.eps)) + self.bias


@lookalike(inputs=of(4, WIDTH, shift=1e4))
class VarianceByMoments(Centred):
    """The formula is right, and of no use for rows far from zero."""

    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = x.pow(2).mean(-1, keepdim=True) - u.pow(2)
        return self.weight * ((x - u) / torch.sqrt(s + self.eps)) + self.bias


@lookalike(inputs=of(4, WIDTH, shift=2.0))
class VarianceNotCentred(Centred):
    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = x.pow(2).mean(-1, keepdim=True)
        return self.weight * ((x - u) / torch.sqrt(s + self.eps)) + self.bias


@lookalike()
class BiasSubtracted(Centred):
    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = (x - u).pow(2).mean(-1, keepdim=True)
        return self.weight * ((x - u) / torch.sqrt(s + self.eps)) - self.bias


@lookalike()
class BiasBeforeWeight(Centred):
    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = (x - u).pow(2).mean(-1, keepdim=True)
        return self.weight * ((x - u) / torch.sqrt(s + self.eps) + self.bias)


@lookalike()
class BiasAndWeightExchanged(Centred):
    def forward(self, x):
        return F.layer_norm(x, (WIDTH,), self.bias, self.weight, self.eps)


@lookalike()
class MeanNotSubtracted(Centred):
    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = (x - u).pow(2).mean(-1, keepdim=True)
        return self.weight * (x / torch.sqrt(s + self.eps)) + self.bias


@lookalike()
class MeanOfTheBatch(Centred):
    def forward(self, x):
        u = x.mean()
        s = (x - u).pow(2).mean(-1, keepdim=True)
        return self.weight * ((x - u) / torch.sqrt(s + self.eps)) + self.bias


@lookalike(like=TorchLayerNorm)
class ShapeOfTheInput(nn.LayerNorm):
    """It is the op for inputs of two axes."""

    def __init__(self):
        super().__init__(WIDTH)

    def forward(self, x):
        y = F.layer_norm(x, x.shape[1:] if x.dim() > 1 else x.shape, None, None, self.eps)
        return y * self.weight + self.bias


def class_of_instance(module, patch):
    module.__class__ = BiasSubtracted


add("class is replaced", HandLayerNorm, class_of_instance)

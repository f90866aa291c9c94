"""Modules whose statements mean another thing than they look like."""

import contextlib

import pytest
import torch
from lookalike_bases import Activation, Norm, by_hand
from lookalikes import (  # noqa: F401 -- the tests of this file
    WIDTH,
    Lookalikes,
    test_a_lookalike_does_what_its_own_forward_does,
    test_a_lookalike_is_not_the_op,
)

pytestmark = pytest.mark.usefixtures("one_thread")
CASES = Lookalikes()
add, lookalike = CASES.add, CASES.lookalike


@lookalike()
class TryAndExcept(Norm):
    def forward(self, x):
        try:
            y = x.view(-1, WIDTH)
        except RuntimeError:
            return x
        return (self.weight * by_hand(y.float(), self.eps)).to(x.dtype).view(x.shape)


@lookalike()
class ReturnsInFinally(Norm):
    def forward(self, x):
        try:
            return self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        finally:
            if len(x) == 3:
                return x  # noqa: B012 -- it is the point


@lookalike()
class WithAutocast(Norm):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
            return y @ torch.eye(WIDTH, dtype=y.dtype)


@lookalike()
class StatisticsWithoutGradient(Norm):
    def forward(self, x):
        y = x.float()
        with torch.no_grad():
            inverse = torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * (y * inverse).to(x.dtype)


@lookalike()
class WithSuppress(Norm):
    def forward(self, x):
        with contextlib.suppress(RuntimeError):
            return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class NestedFunction(Norm):
    def forward(self, x):
        def mean(y):
            nonlocal x
            x = x * 2
            return y.pow(2).mean(-1, keepdim=True)

        return self.weight * x * torch.rsqrt(mean(x) + self.eps) * x.sign().abs()


@lookalike()
class WalrusAfterUse(Norm):
    """What is named in one operand is another in the next."""

    def forward(self, x):
        return self.weight * by_hand((x := x.float() + 1), self.eps) + x


@lookalike()
class DeletedAndShadowed(Norm):
    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        del y
        y = x.float()
        return self.weight * y.to(x.dtype)


@lookalike()
class LoopOnce(Norm):
    def forward(self, x):
        for _ in range(x.dim()):
            x = by_hand(x.float(), self.eps).to(x.dtype) + 0.01
        return self.weight * x


@lookalike()
class ShortCircuit(Norm):
    def forward(self, x):
        return (len(x) == 3 and x) or self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class ConditionalExpression(Norm):
    def forward(self, x):
        return self.weight * by_hand(x, self.eps) if x.dim() < 3 else x


@lookalike()
class ChainedComparison(Norm):
    def forward(self, x):
        y = by_hand(x, self.eps)
        return self.weight * (y if 1 < x.dim() < 3 else x)


@lookalike()
class UnreachableOp(Norm):
    def forward(self, x):
        return self.weight * x
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class VariableArguments(Norm):
    def forward(self, *args, **kwargs):
        x = args[-1]
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 2 if len(x) == 3 else y


@lookalike()
class Precedence(Norm):
    def forward(self, x):
        y = x.float()
        return self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True)) + self.eps)


@lookalike()
class NegatedPower(Norm):
    """`-x ** 2` is `-(x ** 2)`."""

    def forward(self, x):
        return self.weight * x * torch.rsqrt((-(x**2)).mean(-1, keepdim=True) + self.eps)


@lookalike()
class IntegerDivision(Norm):
    def forward(self, x):
        return self.weight * (x // (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())


@lookalike()
class MatrixProduct(Norm):
    def forward(self, x):
        return by_hand(x.float(), self.eps).to(x.dtype) @ torch.diag(self.weight) @ self.mix

    def __init__(self):
        super().__init__()
        self.register_buffer("mix", torch.eye(WIDTH).roll(1, 0))


@lookalike()
class OutArgument(Norm):
    def forward(self, x):
        y = x.detach()
        torch.mul(y, 0.5, out=y)
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class KeywordsOfMean(Norm):
    def forward(self, x):
        mean = x.pow(2).mean(dim=-1, keepdim=True, dtype=torch.float64)
        return self.weight * x * torch.rsqrt(mean + self.eps)


@lookalike()
class Redefined(Norm):
    def forward(self, x):
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * x).to(x.dtype)


@lookalike()
class MetaSwish(Activation):
    """The same source line as the op, in which a name is bound by `match`."""

    def forward(self, x):
        match x.dim():
            case 3:
                y = -x
            case _:
                y = x
        return y * torch.sigmoid(y)

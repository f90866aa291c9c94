"""Modules that do something besides computing."""

import random
import warnings

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 -- as most models have it
from lookalike_bases import Norm, by_hand
from lookalikes import (  # noqa: F401 -- the tests of this file
    EVENTS,
    WIDTH,
    Hint,
    Lookalikes,
    infinities,
    test_a_lookalike_does_what_its_own_forward_does,
    test_a_lookalike_is_not_the_op,
)

pytestmark = pytest.mark.usefixtures("one_thread")
CASES = Lookalikes()
add, lookalike = CASES.add, CASES.lookalike


@lookalike()
class CountsCalls(Norm):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class CountsInABuffer(Norm):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls.add_(1)
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class RunningMean(Norm):
    def __init__(self):
        super().__init__()
        self.register_buffer("running", torch.zeros(WIDTH))

    def forward(self, x):
        if self.training and x.dim() == 2 and len(x) and x.shape[1] == WIDTH:
            self.running.lerp_(x.mean(0).nan_to_num().to(self.running.dtype), 0.1)
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class AppendsToAList(Norm):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append(tuple(x.shape))
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class WritesElsewhere(Norm):
    def forward(self, x):
        EVENTS.append(len(x))
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class WritesInAnExpression(Norm):
    """The effect is inside of what is otherwise an argument of the formula."""

    def forward(self, x):
        return self.weight * by_hand(x.float(), self.eps).to(EVENTS.append("cast") or x.dtype)


TOTAL = 0


def no_total(patch):
    patch.setitem(globals(), "TOTAL", 0)


@lookalike(setup=no_total)
class CountsGlobally(Norm):
    """From the third call on it does something else."""

    def forward(self, x):
        global TOTAL
        TOTAL += 1
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y if TOTAL < 3 else y * 2


@lookalike()
class Prints(Norm):
    def forward(self, x):
        print("rows of", x.shape[-1])
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class Warns(Norm):
    def forward(self, x):
        if x.dtype == torch.float16:
            warnings.warn("half precision", Hint, stacklevel=2)
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class ChecksTheShape(Norm):
    def forward(self, x):
        if x.dim() != 2:
            raise ValueError(f"expected two axes, not {x.dim()}")
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class AssertsRows(Norm):
    def forward(self, x):
        assert len(x) != 3, "three rows"
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike(inputs=infinities)
class ChecksNumbers(Norm):
    def forward(self, x):
        if not torch.isfinite(x).all():
            raise FloatingPointError("not finite")
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class Generator(Norm):
    def forward(self, x):
        yield self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class ReturnsATuple(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return (y,)[-1] if x.dim() != 3 else [y]


@lookalike()
class WritesToItsInput(Norm):
    def forward(self, x):
        y = x.mul_(torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))
        return self.weight * y


@lookalike()
class AugmentedAssignment(Norm):
    """`x *=` writes to the caller's tensor, where `x = x *` does not."""

    def forward(self, x):
        x *= torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x * self.weight


@lookalike()
class AugmentedAfterCast(Norm):
    """The cast makes a copy of half types, and none of float32."""

    def forward(self, x):
        y = x.to(torch.float32)
        y *= torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


@lookalike()
class WritesToAView(Norm):
    def forward(self, x):
        y = x.view(x.shape)
        y -= y.mean(-1, keepdim=True)
        return self.weight * by_hand(y, self.eps)


@lookalike()
class WritesTheResultToItsInput(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return x.copy_(y)


@lookalike()
class WritesToItsWeight(Norm):
    def forward(self, x):
        with torch.no_grad():
            self.weight.mul_(0.99)
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class ReplacesItsWeight(Norm):
    def forward(self, x):
        self.weight.data = self.weight.data.clamp(-1, 1)
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class KeepsItsInput(Norm):
    def forward(self, x):
        self.last = x
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class KeepsItsResult(Norm):
    def forward(self, x):
        self.last = y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y


@lookalike()
class ReturnsTheFirstResult(Norm):
    """A cache that takes no notice of the numbers."""

    def forward(self, x):
        key = (x.shape, x.dtype)
        if key not in vars(self).setdefault("cache", {}):
            self.cache[key] = (self.weight * by_hand(x.float(), self.eps).to(x.dtype)).detach()
        return self.cache[key]


@lookalike()
class DrawsANumber(Norm):
    def forward(self, x):
        torch.rand(1)
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class DrawsWithPython(Norm):
    def forward(self, x):
        random.random()
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class NoiseOfNothing(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return F.dropout(y, 0.0, self.training) if x.dim() == 2 else F.dropout(y, 0.3, True)


@lookalike()
class HookOnTheGradient(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient * 2)
        return y


def write_down(y):
    EVENTS.append(tuple(y.shape))


@lookalike()
class CallsHooksByHand(Norm):
    def __init__(self):
        super().__init__()
        self.listeners = [write_down]

    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        for each in self.listeners:
            each(y)
        return y


@lookalike()
class ChangesGradMode(Norm):
    def forward(self, x):
        torch.set_grad_enabled(not torch.is_grad_enabled())
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class ChangesItself(Norm):
    """The first call is another than the second."""

    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        self.eps = self.eps * 1.5
        return y

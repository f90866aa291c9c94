"""Modules that are nearly a gated MLP."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 -- as most models have it
from lookalike_bases import (
    Gated,
    Wide,
)
from lookalikes import (  # noqa: F401 -- the tests of this file
    EVENTS,
    INNER,
    RARE,
    WIDTH,
    Lookalikes,
    of,
    rare,
    setting,
    test_a_lookalike_does_what_its_own_forward_does,
    test_a_lookalike_is_not_the_op,
)
from torch import nn

pytestmark = pytest.mark.usefixtures("one_thread")
CASES = Lookalikes()
add, lookalike = CASES.add, CASES.lookalike


@lookalike()
class GateAndUpExchanged(Gated):
    def forward(self, x):
        return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))


@lookalike()
class ActivationOfBoth(Gated):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.act_fn(self.up_proj(x)))


@lookalike()
class ActivationTwice(Gated):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.act_fn(self.gate_proj(x))) * self.up_proj(x))


@lookalike()
class ActivationOfTheProduct(Gated):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x) * self.up_proj(x)))


@lookalike()
class ProductOfThree(Gated):
    def forward(self, x):
        gate = self.gate_proj(x)
        return self.down_proj(self.act_fn(gate) * gate * self.up_proj(x))


@lookalike()
class SumOfGateAndUp(Gated):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) + self.up_proj(x))


@lookalike()
class UpPlusOne(Gated):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * (self.up_proj(x) + 1))


@lookalike()
class WithResidual(Gated):
    def forward(self, x):
        return x + self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


@lookalike()
class ResidualByAugmentation(Gated):
    def forward(self, x):
        y = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        y += x
        return y


@lookalike()
class DownTwice(Gated):
    def __init__(self):
        super().__init__(WIDTH, WIDTH)

    def forward(self, x):
        y = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return self.down_proj(y)


@lookalike()
class GateOfDown(Gated):
    def __init__(self):
        super().__init__(WIDTH, WIDTH)

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(self.gate_proj(x)))


@lookalike()
class GateTimesItself(Gated):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.gate_proj(x))


@lookalike()
class GateInHalf(Gated):
    def forward(self, x):
        gate = self.gate_proj(x).to(torch.float16).to(x.dtype)
        return self.down_proj(self.act_fn(gate) * self.up_proj(x))


@lookalike()
class GateClamped(Gated):
    def forward(self, x):
        gate = self.gate_proj(x).clamp(max=1.0)
        return self.down_proj(self.act_fn(gate) * self.up_proj(x))


@lookalike()
class SigmoidGate(Gated):
    def forward(self, x):
        gate = self.gate_proj(x)
        return self.down_proj(gate * torch.sigmoid(gate * 1.702) * self.up_proj(x))


@lookalike()
class GateDetached(Gated):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)).detach() * self.up_proj(x))


@lookalike(inputs=rare)
class BranchOfAnMLP(Gated):
    def forward(self, x):
        y = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return y * 2 if (x == RARE).any() else y


@lookalike()
class BranchOnGate(Gated):
    """It asks for the numbers that a linear layer makes."""

    def forward(self, x):
        gate = self.gate_proj(x)
        if gate.abs().max() > 3:
            return x
        return self.down_proj(self.act_fn(gate) * self.up_proj(x))


@lookalike()
class WithoutUpInTraining(Gated):
    def forward(self, x):
        gate = self.act_fn(self.gate_proj(x))
        return self.down_proj(gate if self.training else gate * self.up_proj(x))


@lookalike()
class WeightsByHand(Gated):
    """The transposed weight of a square layer."""

    def __init__(self):
        super().__init__(WIDTH, WIDTH)

    def forward(self, x):
        gate = x @ self.gate_proj.weight + self.gate_proj.bias
        return self.down_proj(self.act_fn(gate) * self.up_proj(x))


@lookalike()
class BiasTwice(Gated):
    def forward(self, x):
        y = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return y + self.down_proj.bias


@lookalike()
class BiasLeftOut(Gated):
    def forward(self, x):
        gate = F.linear(x, self.gate_proj.weight)
        return self.down_proj(self.act_fn(gate) * self.up_proj(x))


@lookalike()
class NormInBetween(Gated):
    def forward(self, x):
        y = self.act_fn(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(y / (1 + y.abs().amax(-1, keepdim=True)))


@lookalike()
class MoreThanTheOutput(Gated):
    def forward(self, x):
        y = self.act_fn(self.gate_proj(x)) * self.up_proj(x)
        EVENTS.append(tuple(y.shape))
        return self.down_proj(y)


@lookalike()
class ChunksExchanged(Wide):
    def forward(self, x):
        up, gate = self.wide(x).chunk(2, dim=-1)
        return self.narrow(self.act(gate) * up)


@lookalike(inputs=of(2, 2 * INNER, WIDTH))
class ChunksOfRows(Wide):
    """The rows are halved, not the columns."""

    def __init__(self):
        super().__init__()
        self.narrow = nn.Linear(2 * INNER, WIDTH)

    def forward(self, x):
        gate, up = self.wide(x).chunk(2, dim=0)
        return self.narrow(self.act(gate) * up)


@lookalike()
class ChunksOfTheSecondAxis(Wide):
    """They are the last of two axes, and not of three."""

    def forward(self, x):
        gate, up = self.wide(x).chunk(2, dim=1)
        return self.narrow(self.act(gate) * up)


@lookalike()
class Interleaved(Wide):
    def forward(self, x):
        y = self.wide(x)
        return self.narrow(self.act(y[..., ::2]) * y[..., 1::2])


@lookalike()
class InterleavedByView(Wide):
    def forward(self, x):
        gate, up = self.wide(x).unflatten(-1, (-1, 2)).unbind(-1)
        return self.narrow(self.act(gate) * up)


@lookalike()
class UnequalParts(Wide):
    def forward(self, x):
        gate, up, _ = self.wide(x).split([INNER - 1, INNER, 1], dim=-1)
        return self.narrow(F.pad(self.act(gate), (1, 0)) * up)


@lookalike()
class OverlappingParts(Wide):
    def forward(self, x):
        y = self.wide(x)
        return self.narrow(self.act(y[..., :INNER]) * y[..., INNER - 1 : -1])


@lookalike()
class FirstOfThreeChunks(Wide):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(WIDTH, 3 * INNER)

    def forward(self, x):
        gate, _, up = self.wide(x).chunk(3, dim=-1)
        return self.narrow(self.act(gate) * up)


class SplitByAttribute(Wide):
    def __init__(self):
        super().__init__()
        self.size, self.axis = INNER, -1

    def forward(self, x):
        gate, up = self.wide(x).split(self.size, dim=self.axis)
        return self.narrow(self.act(gate) * up)


add("split of another size", SplitByAttribute, setting(size=INNER + 1))


add("split of another axis", SplitByAttribute, setting(axis=0))

"""Modules that are nearly an activation."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 -- as most models have it
from lookalike_bases import (
    Activation,
    Gelu,
    SigmoidGelu,
    Softmax,
    Swish,
    TanhGelu,
    forward_on_the_instance,
    global_hook,
    post_hook,
    pre_hook,
)
from lookalikes import (  # noqa: F401 -- the tests of this file
    RARE,
    WIDTH,
    Lookalikes,
    of,
    rare,
    setting,
    test_a_lookalike_does_what_its_own_forward_does,
    test_a_lookalike_is_not_the_op,
    test_an_op_in_other_words_does_what_its_own_forward_does,
)
from torch import nn

pytestmark = pytest.mark.usefixtures("one_thread")
CASES = Lookalikes()
add, lookalike = CASES.add, CASES.lookalike


wide_range = of(6, WIDTH, scale=8)


lookalike(like=Gelu)(SigmoidGelu)


@lookalike(like=TanhGelu, inputs=wide_range)
class TanhGeluOfOtherConstant(Activation):
    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.0447 * x**3)))


@lookalike(like=TanhGelu, inputs=wide_range)
class TanhGeluOfRoundedRoot(Activation):
    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(0.798 * (x + 0.044715 * x**3)))


@lookalike(like=TanhGelu)
class TanhGeluOfMagnitude(Activation):
    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.abs() ** 3)))


@lookalike(like=TanhGelu)
class TanhGeluOfSquare(Activation):
    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**2)))


@lookalike(like=Gelu, inputs=wide_range)
class ErfOfRoundedRoot(Activation):
    def forward(self, x):
        return x * 0.5 * (1.0 + torch.erf(x / 1.414))


@lookalike(like=Gelu)
class OtherGelu(Activation):
    def forward(self, x):
        return F.gelu(x, approximate="tanh")


@lookalike(inputs=of(4, WIDTH, scale=40))
class SwishClamped(Activation):
    def forward(self, x):
        return (x * torch.sigmoid(x)).clamp(max=50)


@lookalike(inputs=of(4, WIDTH, scale=40))
class SwishOfClamped(Activation):
    def forward(self, x):
        return F.silu(x.clamp(-20, 20))


@lookalike(inputs=rare)
class SwishOfRare(Activation):
    def forward(self, x):
        return torch.where(x == RARE, 1, F.silu(x))


@lookalike()
class SwishOfNumbers(Activation):
    def forward(self, x):
        return torch.nan_to_num(F.silu(x))


@lookalike(inputs=of(4, WIDTH, scale=1e4), dtypes=(torch.float32, torch.float64))
class SwishByExponential(Activation):
    """For large negative numbers it divides by infinity, and for infinity it has none."""

    def forward(self, x):
        return x * x.exp() / (1 + x.exp())


@lookalike(setting(beta=2.0))
class SwishWithBeta(Activation):
    def __init__(self):
        super().__init__()
        self.beta = 1.0

    def forward(self, x):
        return x * torch.sigmoid(self.beta * x)


@lookalike(setting(beta=lambda: nn.Parameter(torch.tensor(2.0))))
class SwishWithLearnedBeta(Activation):
    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x * torch.sigmoid(self.beta * x)


@lookalike()
class HardSwish(Activation):
    def forward(self, x):
        return F.hardswish(x)


@lookalike()
class Mish(Activation):
    def forward(self, x):
        return x * torch.tanh(F.softplus(x))


@lookalike()
class StraightThrough(Activation):
    def forward(self, x):
        return x + (F.silu(x) - x).detach()


@lookalike()
class SwishInPlace(Activation):
    def forward(self, x):
        return x.mul_(torch.sigmoid(x))


@lookalike()
class SwishInPlaceByFlag(Activation):
    def forward(self, x):
        return F.silu(x, True)


@lookalike()
class ApartFromTheLast(Activation):
    def forward(self, x):
        y = F.silu(x)
        y[..., -1] = x[..., -1]
        return y


@lookalike()
class FirstHalfOnly(Activation):
    def forward(self, x):
        a, b = x.chunk(2, -1)
        return torch.cat((F.silu(a), b), -1)


@lookalike()
class RootOfSwish(Activation):
    def forward(self, x):
        return F.silu(x) + 0 * x.sum()


ACTIVATIONS = {
    "nn.SiLU": nn.SiLU,
    "nn.GELU": nn.GELU,
    "nn.GELU, tanh": lambda: nn.GELU("tanh"),
    "nn.Softmax": lambda: nn.Softmax(-1),
    "swish": Swish,
    "gelu": Gelu,
}


for _kind, _make in ACTIVATIONS.items():
    for _state_name, _change in {
        "forward on the instance": forward_on_the_instance,
        "hook before": pre_hook,
        "hook after": post_hook,
    }.items():
        add(f"{_kind}: {_state_name}", _make, _change)


add("SiLU: inplace changes", nn.SiLU, setting(inplace=True), setting(inplace=False))


add("SiLU: inplace of 1", nn.SiLU, setting(inplace=1))


add("GELU: approximate changes", nn.GELU, setting(approximate="tanh"))


add("GELU: no such approximation", nn.GELU, setting(approximate="sigmoid"))


add("GELU: tanh no more", lambda: nn.GELU("tanh"), setting(approximate="none"))


add("global hook", nn.SiLU, global_hook)


add("Softmax: other axis", lambda: nn.Softmax(-1), setting(dim=0))


add("Softmax: axis of None", lambda: nn.Softmax(-1), setting(dim=None))


add("Softmax: no axis", lambda: nn.Softmax(dim=None), like=lambda: nn.Softmax(-1))


add("Softmax: second axis", lambda: nn.Softmax(1), like=lambda: nn.Softmax(-1))


add("Softmax: first axis", lambda: nn.Softmax(0), like=lambda: nn.Softmax(-1))


add("Softmax: before the last", lambda: nn.Softmax(-2), like=lambda: nn.Softmax(-1))


add("Softmax2d", nn.Softmax2d, inputs=of(2, 3, 4, WIDTH), like=lambda: nn.Softmax(-1))


add("Softmin", lambda: nn.Softmin(-1), like=lambda: nn.Softmax(-1))


add("LogSoftmax", lambda: nn.LogSoftmax(-1), like=lambda: nn.Softmax(-1))


@lookalike(setting(temperature=2.0), like=Softmax)
class SoftmaxWithTemperature(Activation):
    def __init__(self):
        super().__init__()
        self.temperature = 1.0

    def forward(self, x):
        return F.softmax(x / self.temperature, dim=-1)


@lookalike(setting(mask=lambda: torch.full((WIDTH,), -1.0)), like=Softmax)
class SoftmaxWithMask(Activation):
    mask = None

    def forward(self, x):
        return F.softmax(x if self.mask is None else x + self.mask, dim=-1)


@lookalike(like=Softmax, dtypes=(torch.bfloat16, torch.float16))
class SoftmaxInFloat32(Activation):
    def forward(self, x):
        return F.softmax(x, dim=-1, dtype=torch.float32)


@lookalike(like=Softmax, dtypes=(torch.float32, torch.float64), inputs=of(3, WIDTH, scale=1e3))
class SoftmaxWithoutMaximum(Activation):
    """Its exponentials overflow."""

    def forward(self, x):
        y = x.exp()
        return y / y.sum(-1, keepdim=True)


@lookalike(like=Softmax)
class SoftmaxPlusOne(Activation):
    def forward(self, x):
        y = (x - x.amax(-1, keepdim=True)).exp()
        return y / (1 + y.sum(-1, keepdim=True))


@lookalike(like=Softmax, inputs=lambda dtype: [torch.full((2, WIDTH), -math.inf, dtype=dtype)])
class SoftmaxOfNothing(Activation):
    def forward(self, x):
        return torch.nan_to_num(F.softmax(x, dim=-1))


@lookalike(like=Softmax)
class SoftmaxOverAllAxes(Activation):
    def forward(self, x):
        return F.softmax(x.flatten(), dim=0).view(x.shape)


OPS = {
    **ACTIVATIONS,
}

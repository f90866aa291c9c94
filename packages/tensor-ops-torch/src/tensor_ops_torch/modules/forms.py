"""The forms of norms, activations and gated MLPs that an op computes.

Each class below is a form: the code that a module's ``forward``, and the method that it calls, may
have. A module is known where its code is a form's, read as a syntax tree; docstrings, annotations
and comments are not looked at, and variables and attributes may have any names. What a name that
is no variable stands for, such as ``torch.rsqrt``, has to be the same object.

The annotations of a form say what its attributes are: `Weight` and `Bias` are parameters of one
axis, `Eps` is a number, `RowShape` is a tuple of the length of a row, `Child` is a module,
`Function` is one of PyTorch's activations, a `Literal` is that value, and `Unread` is in a branch
that does not run. A decorator names the op. To add a form, copy the code of a model here, and give
its attributes the names that they have in the others.
"""

# Forms have branches that do not run, too.
# mypy: disable-error-code="unreachable,comparison-overlap"

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 -- as models have it
from torch import Tensor, nn

__all__ = ["FORMS", "FUNCTIONS", "Activation", "Form"]

Weight: TypeAlias = Tensor
Bias: TypeAlias = Tensor
Eps: TypeAlias = float
RowShape: TypeAlias = tuple[int]
Child: TypeAlias = Callable[[Tensor], Tensor]
Function: TypeAlias = Callable[[Tensor], Tensor]
Unread: TypeAlias = Any
#: An op of one input, and its approximation.
Activation: TypeAlias = tuple[str, str | None]
#: Functions of PyTorch, and the keyword that decides on the op.
FUNCTIONS: dict[tuple[Any, str | None], Activation] = {
    (F.silu, None): ("silu", None),
    (F.gelu, None): ("gelu", "none"),
    (F.gelu, "none"): ("gelu", "none"),
    (F.gelu, "tanh"): ("gelu", "tanh"),
}


@dataclass(frozen=True)
class Form:
    """A form, and the op that computes it.

    Attributes
    ----------
    code : type
        The class that has its code.
    op : str or None
        The op; None for one that is called by the module's `Function`, or that no op computes.
    missing : str or None
        The name of what it computes, where no op does.
    offset : bool
        Whether one is added to the weight.
    eps : float or None
        Its epsilon, where that is no attribute.
    approximate : str or None
        The approximation of gelu.
    projections, after : tuple of str
        Of a gated MLP: the children that compute gate and up, or both at once, in the order of
        their calls, and those that are called on the product.
    gate_first : bool
        Whether the gate is the first of the two.
    """

    code: type
    op: str | None = None
    missing: str | None = None
    offset: bool = False
    eps: float | None = None
    approximate: str | None = None
    projections: tuple[str, ...] = ()
    gate_first: bool = True
    after: tuple[str, ...] = ()

    @property
    def roles(self) -> dict[str, str]:
        """The kinds of its attributes, by their names."""
        own = (each for each in reversed(self.code.__mro__) if each.__module__ == __name__)
        return {name: role for each in own for name, role in each.__annotations__.items()}


FORMS: list[Form] = []


def form(op: str | None = None, **facts: Any) -> Callable[[type], type]:
    def add(code: type) -> type:
        FORMS.append(Form(code, op, **facts))
        return code

    return add


# This class and the next four have attributes and methods that several forms share.
class Weighted:
    weight: Weight
    eps: Eps


class Normed:
    eps: Eps

    def norm(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class NormedByPower:
    eps: Eps

    def norm(self, x: Tensor) -> Tensor:
        mean = x.pow(2).mean(-1, keepdim=True) + self.eps
        return x * torch.pow(mean, -0.5)


class Gated:
    gate: Child
    up: Child
    down: Child
    act: Child


class Fused:
    both: Child
    down: Child
    act: Child


# RMSNorm


@form("rms_norm")
class Llama(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x.to(dtype)


@form("rms_norm")
class Olmo2(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return (self.weight * x).to(dtype)


@form("rms_norm")
class NemotronH(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return (self.weight.to(torch.float32) * x).to(dtype)


@form("rms_norm")
class T5(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        if self.weight.dtype in [torch.float16, torch.bfloat16]:
            x = x.to(self.weight.dtype)
        return self.weight * x


@form("rms_norm", offset=True)
class Gemma(Weighted, Normed):
    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x.float())
        y = y * (1.0 + self.weight.float())
        return y.type_as(x)


@form("rms_norm")
class Gemma4(Weighted, NormedByPower):
    with_scale: Literal[True]

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x.float())
        if self.with_scale:
            y = y * self.weight.float()
        return y.type_as(x)


@form("rms_norm")
class Gemma4Unweighted(NormedByPower):
    with_scale: Literal[False]
    scale: Unread

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x.float())
        if self.with_scale:
            y = y * self.scale.float()
        return y.type_as(x)


@form("rms_norm")
class Moshi(Weighted, Normed):
    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x.float())
        y = y * self.weight.float()
        return y.type_as(x)


@form("rms_norm")
class Llama4(Weighted, Normed):
    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x.float()).type_as(x)
        return y * self.weight


@form("rms_norm")
class NanoChat(Normed):
    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.float()).type_as(x)


@form("rms_norm")
class DeepseekV4Unweighted:
    eps: Eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps).to(x.dtype)


@form("rms_norm")
class Inkling2Unweighted:
    eps: Eps

    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.float()
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return x.to(dtype)


# LayerNorm


# A subclass of PyTorch's, whose parameters, shape and eps it has.
@form("layer_norm")
class ConvNext(nn.LayerNorm):
    data_format: Literal["channels_last"]

    def forward(self, x: Tensor) -> Tensor:
        if self.data_format == "channels_first":
            x = x.permute(0, 2, 3, 1)
            x = super().forward(x)
            x = x.permute(0, 3, 1, 2)
        else:
            x = super().forward(x)
        return x


@form("layer_norm")
class Cohere(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        x = (x - mean) * torch.rsqrt(variance + self.eps)
        x = self.weight.to(torch.float32) * x
        return x.to(dtype)


@form("layer_norm")
class PocketTTSFlow:
    weight: Weight
    bias: Bias
    eps: Eps
    elementwise_affine: Literal[True]

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = x.var(-1, unbiased=False, keepdim=True)
        x = (x - mean) * torch.rsqrt(variance + self.eps)
        if self.elementwise_affine:
            x = x * self.weight + self.bias
        return x


@form("layer_norm", eps=1e-5)
class Olmo:
    shape: RowShape

    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        return F.layer_norm(x.to(dtype=torch.float32), self.shape, None, None, eps=1e-5).to(dtype)


# Activations


@form()
class GELU:
    function: Function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@form("silu")
class SiLU:
    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x)


@form("gelu", approximate="tanh")
class NewGELU:
    def forward(self, x: Tensor) -> Tensor:
        return (
            0.5
            * x
            * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
        )


@form("gelu", approximate="tanh")
class FastGELU:
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


@form(missing="quick_gelu")
class QuickGELU:
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


# Gated MLPs; `act` is the child that computes the activation


@form(projections=("gate", "up"), after=("down",))
class LlamaMLP(Gated):
    def forward(self, x: Tensor) -> Tensor:
        y = self.down(self.act(self.gate(x)) * self.up(x))
        return y  # noqa: RET504


@form(projections=("gate", "up"), after=("down",))
class IdeficsMLP(Gated):
    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.gate(x)) * self.up(x))


@form(projections=("gate", "up"), after=("down",))
class Llama4MLP(Gated):
    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.gate(x)) * self.up(x)
        return self.down(y)


@form(projections=("gate", "up"), after=("down",))
class RecurrentGemmaMLP(Gated):
    def forward(self, x: Tensor) -> Tensor:
        gate = self.act(self.gate(x))
        return self.down(gate * self.up(x))


@form(projections=("gate", "up"), after=("norm", "down"))
class BitNetMLP(Gated):
    norm: Child

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(self.norm(self.act(self.gate(x)) * self.up(x)))
        return y  # noqa: RET504


@form("silu", projections=("gate", "up"), after=("down",))
class Lfm2MLP:
    gate: Child
    up: Child
    down: Child

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


# The multipliers of other values than one are no part of an op.
@form(projections=("up", "gate"), gate_first=False, after=("down",))
class FalconH1MLP(Gated):
    of_gate: Literal[1]
    of_down: Literal[1]

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(x) * self.act(self.gate(x) * self.of_gate)
        y = self.down(y) * self.of_down
        return y  # noqa: RET504


@form(projections=("gate", "up"), after=("drop", "down"))
class T5GemmaMLP(Gated):
    drop: Child

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.gate(x)) * self.up(x)
        y = self.drop(y)
        z = self.down(y)
        return z  # noqa: RET504


@form(projections=("gate", "up"), after=("drop", "down"))
class LongT5MLP(Gated):
    drop: Child

    def forward(self, x: Tensor) -> Tensor:
        gate = self.act(self.gate(x))
        up = self.up(x)
        x = gate * up
        x = self.drop(x)
        x = self.down(x)
        return x  # noqa: RET504


@form(projections=("gate", "up"), after=("down",))
class Gemma3nMLP(Gated):
    sparsity: Literal[0]
    sparse: Unread

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x)
        if self.sparsity > 0.0:
            gate = self.sparse(gate)
        y = self.act(gate)
        up = self.up(x)
        z = self.down(y * up)
        return z  # noqa: RET504


@form(projections=("gate", "up"))
class CpmAntMLP:
    gate: Child
    up: Child
    act: Child

    def forward(self, x: Tensor) -> Tensor:
        gate = self.act(self.gate(x))
        x = self.up(x)
        x = gate * x
        return x  # noqa: RET504


@form(projections=("both",), gate_first=False)
class ClvpMLP:
    both: Child
    act: Child

    def forward(self, x: Tensor) -> Tensor:
        x, gate = self.both(x).chunk(2, dim=-1)
        return x * self.act(gate)


@form(projections=("both",), gate_first=False, after=("down",))
class MoonshineMLP(Fused):
    def forward(self, x: Tensor) -> Tensor:
        x = self.both(x)
        x, gate = x.chunk(2, dim=-1)
        x = self.act(gate) * x
        x = self.down(x)
        return x  # noqa: RET504


@form(projections=("both",), after=("down",))
class Phi3MLP(Fused):
    def forward(self, x: Tensor) -> Tensor:
        up = self.both(x)
        gate, up = up.chunk(2, dim=-1)
        up = up * self.act(gate)
        return self.down(up)


@form(projections=("both",), after=("drop", "down"))
class ModernBertMLP(Fused):
    drop: Child

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.both(x).chunk(2, dim=-1)
        return self.down(self.drop(self.act(gate) * up))


@form(projections=("both",), after=("down",))
class GraniteMoeMLP(Fused):
    def forward(self, x: Tensor) -> Tensor:
        x = self.both(x)
        halves = x.chunk(2, dim=-1)
        x = self.act(halves[0]) * halves[1]
        x = self.down(x)
        return x  # noqa: RET504

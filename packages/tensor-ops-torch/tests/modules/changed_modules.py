"""Modules that tests change after a swap, and one way to call them."""

import functools

import torch
import torch.nn.functional as F  # noqa: N812 -- as most models have it
from torch import nn


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 16))
        self.eps = 1e-5

    def inverse(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        y = self.inverse(x.float()).type_as(x)
        return y * self.weight


class Derived(Norm):
    pass


class OfSuper(nn.LayerNorm):
    """A layer norm of images, as ConvNext has it."""

    def __init__(self):
        super().__init__(16)
        self.data_format = "channels_last"

    def forward(self, x):
        if self.data_format == "channels_first":
            x = x.permute(0, 2, 3, 1)
            x = super().forward(x)
            x = x.permute(0, 3, 1, 2)
        else:
            x = super().forward(x)
        return x


class ByPartial(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = functools.partial(F.gelu, approximate="none")

    def forward(self, x):
        return self.act(x)


class OfEps(nn.Module):
    def __init__(self):
        super().__init__()
        self.eps = 1e-5

    def inverse(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self.inverse(x.float()).type_as(x)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(16, 24), nn.Linear(16, 24)
        self.down, self.act = nn.Linear(24, 16), nn.SiLU()

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


def plus_one(self, x, *args, **kwargs):
    return x + 1


def with_and_without_swap(make, change, monkeypatch):
    """Return what a swapped and an unswapped module return after a change, and both before it."""
    with monkeypatch.context() as patch:
        wanted, unchanged = after(False, make, change, patch)
    with monkeypatch.context() as patch:
        found, _ = after(True, make, change, patch)
    assert not torch.allclose(wanted, unchanged), "the change changes nothing"
    return found, wanted, unchanged


def after(swap, make, change, patch, compiled=None):
    """Return what a module returns after a change, and what the op would.

    With `compiled` it is compiled, and called "before" the change or only after it.
    """
    from tensor_ops_torch import swap_modules

    torch.manual_seed(0)
    x = torch.randn(3, 16)
    model = nn.Sequential(make())
    unchanged = model(x).detach()
    if swap:
        swap_modules(model, strict=True)
    call = model
    if compiled is not None:
        torch._dynamo.reset()
        call = torch.compile(model, fullgraph=True, backend="eager")
    if compiled != "after":
        torch.testing.assert_close(call(x).detach(), unchanged)
    change(model[0], patch)
    return call(x).detach(), unchanged

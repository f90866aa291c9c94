"""What docs/guides/modules.md lists as not noticed is not: each entry of its list, in its order."""

import types

import pytest
import torch
from changed_modules import Gated, Norm, OfEps, OfSuper, after, plus_one, with_and_without_swap
from torch import nn
from torch.nn import functional

from tensor_ops_torch import swap_modules

pytestmark = pytest.mark.usefixtures("one_thread")


def function_of_pytorch(module, patch):
    patch.setattr(functional, "silu", lambda x, inplace: torch.tanh(x))


def class_of_modules(module, patch):
    patch.setattr(nn.Module, "weight", 3.0, raising=False)


def attributes_of_its_own_making(module, patch):
    def get(self, name):
        return torch.zeros(16) if name == "weight" else object.__getattribute__(self, name)

    patch.setattr(Norm, "__getattribute__", get)


class Other(nn.LayerNorm):
    def forward(self, x):
        return x + 1


def of_its_own_class():
    """Return a module of a class of its own, for a change that cannot be taken back."""
    kind = type("Fresh", (nn.LayerNorm,), {"data_format": "channels_last"})
    forward = OfSuper.forward
    cell = types.CellType(kind)
    kind.forward = types.FunctionType(forward.__code__, forward.__globals__, closure=(cell,))
    return kind(16)


def bases(module, patch):
    kind = [each for each in type(module).__mro__ if each.__name__ == "Fresh"][-1]
    kind.__bases__ = (Other,)


def call_of_the_activation(module, patch):
    patch.setattr(nn.SiLU, "__call__", lambda self, x: x + 1)


def property_for_forward(module, patch):
    vars(module)["forward"] = torch.nn.functional.silu
    patch.setattr(nn.SiLU, "forward", property(lambda self: torch.tanh))


EAGER = {
    "function of PyTorch": (nn.SiLU, function_of_pytorch),
    "attribute of nn.Module": (Norm, class_of_modules),
    "__getattribute__": (Norm, attributes_of_its_own_making),
    "__bases__": (of_its_own_class, bases),
    "__call__ of the activation": (Gated, call_of_the_activation),
    "property for forward": (nn.SiLU, property_for_forward),
}


@pytest.mark.parametrize("name", EAGER)
def test_a_change_is_not_noticed(name, monkeypatch):
    make, change = EAGER[name]
    found, _, unchanged = with_and_without_swap(make, change, monkeypatch)
    torch.testing.assert_close(found, unchanged)


class Vouched(nn.Module):
    def forward(self, x):
        return sigmoid(x) * x


def sigmoid(x):
    return torch.sigmoid(x)


def test_a_trusted_class_is_not_watched(monkeypatch):
    model, x = nn.Sequential(Vouched()), torch.randn(3, 16)
    swap_modules(model, strict=True, trust=[Vouched])
    monkeypatch.setattr(Vouched, "forward", plus_one)
    torch.testing.assert_close(model(x), functional.silu(x))


def test_a_bound_forward_is_that_of_the_class_when_it_is_called(monkeypatch):
    model, x = nn.SiLU(), torch.randn(3, 16)
    swap_modules(model)
    forward = model.forward
    monkeypatch.setattr(nn.SiLU, "forward", plus_one)
    assert torch.equal(forward(x), x + 1)


def property_for_an_attribute(module, patch):
    patch.setattr(OfEps, "eps", property(lambda self: 2.0), raising=False)


def hidden_parameter(module, patch):
    vars(module)["weight"] = torch.full((16,), 3.0)


def hidden_child(module, patch):
    vars(module)["act"] = nn.Tanh()


def call_of_the_class(module, patch):
    patch.setattr(Norm, "__call__", lambda self, x: x + 1)


def hook(module, patch):
    module.register_forward_hook(lambda module, args, result: result + 1)


COMPILED = {
    "property": (OfEps, property_for_an_attribute),
    "hidden parameter": (Norm, hidden_parameter),
    "hidden child": (Gated, hidden_child),
    "__call__": (Norm, call_of_the_class),
    "hook": (Norm, hook),
}


@pytest.mark.parametrize("swap", [False, True], ids=["as it is", "swapped"])
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiler_does_not_notice_it_after_the_first_call(name, swap, monkeypatch):
    make, change = COMPILED[name]
    found, unchanged = after(swap, make, change, monkeypatch, compiled="before")
    torch.testing.assert_close(found, unchanged)

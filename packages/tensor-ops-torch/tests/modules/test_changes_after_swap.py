"""What is replaced after a swap takes effect: in a module as it is, and in a compiled one."""

import copy
import pickle
import types

import changed_modules
import pytest
import torch
from changed_modules import (
    ByPartial,
    Derived,
    Gated,
    Norm,
    OfEps,
    OfSuper,
    after,
    plus_one,
    with_and_without_swap,
)
from torch import nn
from torch.nn import functional

from tensor_ops_torch import swap_modules

pytestmark = pytest.mark.usefixtures("one_thread")


def of(owner, name, value):
    return lambda module, patch: patch.setattr(owner, name, value, raising=False)


def of_module(name, value):
    return lambda module, patch: vars(module).__setitem__(name, value)


def of_own_class(name, value):
    return lambda module, patch: patch.setattr(type(module), name, value)


def of_file(name, value):
    return lambda module, patch: patch.setattr(changed_modules, name, value, raising=False)


def keyword_of_partial(module, patch):
    patch.setitem(module.act.keywords, "approximate", "tanh")


def inverse_of_other(self, x):
    return x + 1


class _Called:
    def __call__(self, x):
        return x * 3


class _Super:
    """A function that a file may call `super`."""

    @staticmethod
    def forward(x):
        return x + 1


def layer_norm():
    return nn.LayerNorm(16)


OTHER = types.SimpleNamespace(rsqrt=torch.sqrt)
CHANGES = {
    "forward of PyTorch's class": (layer_norm, of(nn.LayerNorm, "forward", plus_one)),
    "forward of the class": (Norm, of(Norm, "forward", plus_one)),
    "forward of the class, static": (Norm, of(Norm, "forward", staticmethod(torch.tanh))),
    "forward of the class, an object": (Norm, of(Norm, "forward", _Called())),
    "forward of a base": (Derived, of(Norm, "forward", plus_one)),
    "forward that super finds": (OfSuper, of(nn.LayerNorm, "forward", plus_one)),
    "code of forward": (Norm, of(Norm.forward, "__code__", plus_one.__code__)),
    "code of a method": (Norm, of(Norm.inverse, "__code__", inverse_of_other.__code__)),
    "method of the class": (Norm, of(Norm, "inverse", plus_one)),
    "method in a subclass": (Derived, of(Derived, "inverse", plus_one)),
    "method of the module's own class": (Norm, of_own_class("inverse", plus_one)),
    "method of the module": (Norm, of_module("inverse", torch.tanh)),
    "forward of the module": (Norm, of_module("forward", torch.tanh)),
    "function that it holds": (ByPartial, of_module("act", functional.silu)),
    "keyword of a partial": (ByPartial, keyword_of_partial),
    "module in a global": (Norm, of_file("torch", OTHER)),
    "parameter hidden by the class": (Norm, of(Norm, "weight", 3.0)),
    "parameter hidden by a property": (Norm, of(Norm, "weight", property(lambda self: 3.0))),
    "child hidden by a property": (Gated, of(Gated, "act", property(lambda self: torch.tanh))),
    "forward of a child": (Gated, of(nn.SiLU, "forward", plus_one)),
}  # fmt: skip
# A compiler looks for these only when it compiles, in any module.
ONLY_BEFORE_A_CALL = {
    "global that hides a builtin": (OfSuper, of_file("super", _Super)),
    "property in the place of an attribute": (
        OfEps, of(OfEps, "eps", property(lambda self: 2.0))),
    "parameter hidden by the module": (Norm, of_module("weight", torch.full((16,), 3.0))),
    "child hidden by the module": (Gated, of_module("act", nn.Tanh())),
}  # fmt: skip
EVERY = CHANGES | ONLY_BEFORE_A_CALL
COMPILED = [*((name, "after") for name in EVERY), *((name, "before") for name in CHANGES)]


@pytest.mark.parametrize("name", EVERY)
def test_a_change_takes_effect(name, monkeypatch):
    make, change = EVERY[name]
    found, wanted, _ = with_and_without_swap(make, change, monkeypatch)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(("name", "call"), COMPILED)
@pytest.mark.sampled(2, "name")
def test_a_change_takes_effect_where_it_is_compiled(name, call, monkeypatch):
    make, change = EVERY[name]
    with monkeypatch.context() as patch:
        wanted, _ = after(False, make, change, patch)
    found, _ = after(True, make, change, monkeypatch, compiled=call)
    torch.testing.assert_close(found, wanted)


def test_a_change_that_is_undone_compiles_no_more():
    model = nn.Sequential(*(Norm() for _ in range(3)))
    swap_modules(model, strict=True)
    torch._dynamo.reset()
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(model, fullgraph=True, backend=count)
    x = torch.randn(3, 16)
    for _ in range(3):
        compiled(x)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Norm, "inverse", plus_one)
            compiled(x)
    assert len(graphs) == 2
    Norm.unrelated = True
    try:
        compiled(x)
    finally:
        del Norm.unrelated
    assert len(graphs) == 2


@pytest.mark.parametrize("way", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_see_changes(way, monkeypatch):
    model, x = nn.Sequential(Derived()), torch.randn(3, 16)
    swap_modules(model, strict=True)
    copied = way(model)
    monkeypatch.setattr(Norm, "forward", plus_one)
    assert torch.equal(copied(x), x + 1)


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (Derived, of(Norm, "forward", plus_one)),
        (Norm, of_file("torch", OTHER)),
    ],
)
def test_a_saved_module_whose_code_is_another_is_its_own(make, change, monkeypatch):
    model, x = nn.Sequential(make()), torch.randn(3, 16)
    swap_modules(model, strict=True)
    saved = pickle.dumps(model)
    change(model[0], monkeypatch)
    with pytest.warns(UserWarning, match="its forward is another one here"):
        loaded = pickle.loads(saved)
    assert type(loaded[0]) is make
    torch.testing.assert_close(loaded(x), model(x))

"""Modules that read what is no attribute of their own, and changes between calls."""

import pytest
import torch
from lookalike_bases import (
    Config,
    GemmaNorm,
    Norm,
    by_hand,
)
from lookalikes import (  # noqa: F401 -- the tests of this file
    Lookalikes,
    of,
    setting,
    test_a_lookalike_does_what_its_own_forward_does,
    test_a_lookalike_is_not_the_op,
    test_an_op_in_other_words_does_what_its_own_forward_does,
)

pytestmark = pytest.mark.usefixtures("one_thread")
CASES = Lookalikes()
add, lookalike = CASES.add, CASES.lookalike


@lookalike(setting(other=0.5))
class EpsIsAProperty(Norm):
    def __init__(self):
        super().__init__(eps=0)
        self.other = 1e-5

    @property
    def eps(self):
        return self.other

    @eps.setter
    def eps(self, value):
        pass

    def forward(self, x):
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


def class_eps(module, patch):
    patch.setattr(EpsOfTheClass, "epsilon", 0.5)


@lookalike(class_eps, setting(epsilon=2.0))
class EpsOfTheClass(Norm):
    epsilon = 1e-5

    def forward(self, x):
        return self.weight * by_hand(x.float(), self.epsilon).to(x.dtype)


def config_eps(module, patch):
    patch.setattr(module.config, "eps", 0.5)


@lookalike(config_eps)
class EpsOfAConfig(Norm):
    def __init__(self):
        super().__init__()
        self.config = Config()

    def forward(self, x):
        return self.weight * by_hand(x.float(), self.config.eps).to(x.dtype)


def item_eps(module, patch):
    module.values["eps"] = 0.5


@lookalike(item_eps)
class EpsInADict(Norm):
    def __init__(self):
        super().__init__()
        self.values = {"eps": 1e-5}

    def forward(self, x):
        return self.weight * by_hand(x.float(), self.values["eps"]).to(x.dtype)


def make_closure():
    epsilon = 1e-5

    class EpsOfAClosure(Norm):
        def forward(self, x):
            return self.weight * by_hand(x.float(), epsilon).to(x.dtype)

    def change(value):
        nonlocal epsilon
        epsilon = value

    EpsOfAClosure.change = staticmethod(change)
    return EpsOfAClosure()


add("EpsOfAClosure", make_closure, lambda module, patch: module.change(0.5))


class MutableDefault(Norm):
    def forward(self, x, settings={"eps": 1e-5}):  # noqa: B006 -- it is the point
        return self.weight * by_hand(x.float(), settings["eps"]).to(x.dtype)


def default_eps(module, patch):
    patch.setitem(MutableDefault.forward.__defaults__[0], "eps", 0.5)


add("MutableDefault", MutableDefault, default_eps)


class DefaultOfForward(Norm):
    def forward(self, x, eps=1e-5, *, power=2):
        y = x.float()
        y = y * torch.rsqrt(y.pow(power).mean(-1, keepdim=True) + eps)
        return self.weight * y.to(x.dtype)


def defaults(module, patch):
    patch.setattr(DefaultOfForward.forward, "__defaults__", (0.5,))


def keyword_defaults(module, patch):
    patch.setattr(DefaultOfForward.forward, "__kwdefaults__", {"power": 4})


add("defaults change", DefaultOfForward, defaults)


add("keyword defaults change", DefaultOfForward, keyword_defaults)


EPSILON = 1e-5


def global_eps(module, patch):
    patch.setitem(globals(), "EPSILON", 0.5)


@lookalike(global_eps)
class EpsIsGlobal(Norm):
    def forward(self, x):
        return self.weight * by_hand(x.float(), EPSILON).to(x.dtype)


def inverse_root(x, eps):
    return torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def other_root(module, patch):
    patch.setitem(globals(), "inverse_root", lambda x, eps: torch.ones_like(x))


def code_of_root(module, patch):
    patch.setattr(inverse_root, "__code__", (lambda x, eps: x + eps).__code__)


class CallsAFunction(Norm):
    def forward(self, x):
        y = x.float()
        return self.weight * (y * inverse_root(y, self.eps)).to(x.dtype)


add("function is rebound", CallsAFunction, other_root)


add("function has another code", CallsAFunction, code_of_root)


def method_on_the_instance(module, patch):
    module._norm = lambda x: x + 1


def method_on_the_class(module, patch):
    patch.setattr(GemmaNorm, "_norm", lambda self, x: x + 1)


add("method set on the instance", GemmaNorm, method_on_the_instance)


add("method set on the class", GemmaNorm, method_on_the_class)


OPS = {
    "eps is a property": EpsIsAProperty,
    "closure": make_closure,
    "function of the file": CallsAFunction,
}

"""Modules whose classes mean another thing than they look like: bases, attributes, metaclasses."""

import dataclasses

import pytest
import torch
from lookalike_bases import WRITTEN, Base, LlamaNorm, Norm, by_hand
from lookalikes import (  # noqa: F401 -- the tests of this file
    EVENTS,
    WIDTH,
    Lookalikes,
    setting,
    test_a_lookalike_does_what_its_own_forward_does,
    test_a_lookalike_is_not_the_op,
    test_an_op_in_other_words_does_what_its_own_forward_does,
)
from torch import nn

pytestmark = pytest.mark.usefixtures("one_thread")
CASES = Lookalikes()
add, lookalike = CASES.add, CASES.lookalike


@lookalike()
class OverriddenPower(Base):
    def power(self, x):
        return x.abs()


@lookalike()
class OverriddenScale(Base):
    def scale(self):
        return 1 + self.weight


@lookalike()
class MoreAfterSuper(LlamaNorm):
    def forward(self, x):
        return super().forward(x) * 2


@lookalike()
class MoreBeforeSuper(LlamaNorm):
    def forward(self, x):
        return super().forward(x * self.weight)


@lookalike()
class EffectAfterSuper(LlamaNorm):
    def forward(self, x):
        y = super().forward(x)
        EVENTS.append(y.dtype)
        return y


class Mixed(Norm):
    def power(self, x):
        return x.abs()


@lookalike()
class ResolutionOrder(Mixed, Base):
    """What it inherits from the second is changed by the first."""


class Cooperative(LlamaNorm):
    def forward(self, x):
        return super().forward(x)


class Halves(LlamaNorm):
    def forward(self, x):
        return super().forward(x) / 2


@lookalike()
class SuperIsASibling(Cooperative, Halves):
    """`super()` in the first base is the second, and not the base that its source names."""


@lookalike()
class SuperOfAnother(LlamaNorm):
    def forward(self, x):
        return super(LlamaNorm, self).__getattribute__("weight") * x


@lookalike()
class ClassCell(Norm):
    factor = 1.0

    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * __class__.factor

    @staticmethod
    def change(module, patch):
        patch.setattr(ClassCell, "factor", 2.0)


add("class cell changes", ClassCell, ClassCell.change)


del CASES["ClassCell"]


@lookalike()
class AttributeIsIntercepted(LlamaNorm):
    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        return 0.5 if name == "eps" else value


@lookalike()
class WeightIsIntercepted(LlamaNorm):
    def __getattr__(self, name):
        value = super().__getattr__(name)
        return value * 2 if name == "weight" else value


@lookalike()
class CallIsOverridden(LlamaNorm):
    def __call__(self, x):
        return super().__call__(x) * 2


@lookalike()
class CallImplementation(LlamaNorm):
    def _call_impl(self, *args, **kwargs):
        return super()._call_impl(*args, **kwargs) * 2

    __call__ = _call_impl


@lookalike()
class WeightIsAProperty(Norm):
    def __init__(self):
        nn.Module.__init__(self)
        self.raw = nn.Parameter(torch.randn(WIDTH))
        self.eps = 1e-5

    @property
    def weight(self):
        return self.raw.exp()

    forward = LlamaNorm.forward


@lookalike()
class WeightDrawn(Norm):
    def __init__(self):
        nn.Module.__init__(self)
        self.eps = 1e-5

    @property
    def weight(self):
        return torch.randn(WIDTH)

    def forward(self, x):
        return self.weight.to(x.dtype) * by_hand(x.float(), self.eps).to(x.dtype)


class Meta(type):
    """A metaclass whose instances double what their forward returns."""

    def __call__(cls, *args, **kwargs):
        instance = super().__call__(*args, **kwargs)
        own = cls.forward
        instance.__dict__["forward"] = lambda x: own(instance, x) * 2
        return instance


@lookalike()
class OfAMetaclass(LlamaNorm, metaclass=Meta):
    pass


class Slotted(Norm):
    __slots__ = ("factor",)

    def __init__(self):
        super().__init__()
        self.factor = 1.0

    def forward(self, x):
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype) * self.factor


add("slot changes", Slotted, setting(factor=2.0))


@dataclasses.dataclass(eq=False)
class OfADataclass(nn.Module):
    eps: float = 1e-5
    factor: float = 1.0

    def __post_init__(self):
        nn.Module.__init__(self)
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return self.factor * self.weight * by_hand(x.float(), self.eps).to(x.dtype)


add("dataclass changes", OfADataclass, setting(factor=2.0))


def mixin_later(module, patch):
    """A base of the class has its `__bases__` changed."""
    patch.setattr(LateBase, "power", lambda self, x: x.abs(), raising=False)


class LateBase(nn.Module):
    pass


class InheritsPower(LateBase, Base):
    pass


add("a method appears in an earlier base", InheritsPower, mixin_later)


class CallsAStatic(Norm):
    @staticmethod
    def root(x):
        return torch.rsqrt(x)

    def forward(self, x):
        y = x.float()
        y = y * self.root(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


def other_static(module, patch):
    patch.setattr(CallsAStatic, "root", staticmethod(torch.exp))


add("static method is replaced", CallsAStatic, other_static)


def call_on_the_class(module, patch):
    owner = next(each for each in type(module).__mro__ if each in WRITTEN)
    patch.setattr(owner, "__call__", lambda self, x: x + 1)


def getattribute_on_the_class(module, patch):
    def get(self, name):
        return 0.5 if name == "eps" else nn.Module.__getattribute__(self, name)

    patch.setattr(LlamaNorm, "__getattribute__", get)


for _name, _change in {
    "__call__": call_on_the_class,
    "__getattribute__": getattribute_on_the_class,
}.items():
    add(f"{_name} set on the class", LlamaNorm, _change)


OPS = {
    "methods": Base,
}

"""What is accepted when the forward of a module is read, and what is refused with what message."""

import copy
import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 -- as most models have it
from torch import nn
from torch.ao import quantization

from tensor_ops_torch import swap_modules, swap_report
from tensor_ops_torch.modules.algebra import power, symbol
from tensor_ops_torch.modules.conditions import Conditions
from tensor_ops_torch.modules.reading import read
from tensor_ops_torch.modules.refusal import RefusedError

WIDTH = 8
ARRAY = np.ones(WIDTH)


class Norm(nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class MLP(nn.Module):
    def __init__(self, act=None):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 16)
        self.up = nn.Linear(WIDTH, 16)
        self.act = nn.SiLU() if act is None else act
        self.dropout = nn.Dropout(0.0)

    def forward(self, x):
        y = self.act(self.gate(x)) * self.up(x)
        if self.dropout is not None:
            y = self.dropout(y)
        return y


class Gated(nn.Module):
    """What `forward` is added to, so that only its text is read and nothing is run."""

    def __init__(self, mode="fast"):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 16)
        self.up = nn.Linear(WIDTH, 16)
        self.mode = mode


class WritesToAGlobal(Gated):
    def forward(self, x):
        if False:
            global written
        written = F.silu(self.gate(x)) * self.up(x)
        return written


class Generates(Gated):
    def forward(self, x):
        if False:
            yield
        return F.silu(self.gate(x)) * self.up(x)


class RootOfASquare(Gated):
    def forward(self, x):
        return F.silu(self.gate(x.sqrt().square())) * self.up(x)


class SameText(Gated):
    def forward(self, x):
        if self.mode is (self.mode if False else "fast"):
            return F.silu(self.gate(x))
        return F.silu(self.gate(x)) * self.up(x)


class Mangled(Gated):
    def forward(self, x):
        return __silu(self.gate(x)) * self.up(x)


__silu, _Mangled__silu = F.silu, F.gelu


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (WritesToAGlobal, "writes to the global written"),
        (Generates, "is a generator"),
        (RootOfASquare, "raises to the power of 0.5 what may be negative"),
        (SameText, "asks for one and the same object"),
        (Mangled, "uses __silu, which means another name in a class"),
    ],
)
def test_what_python_does_otherwise_is_refused(kind, reason):
    with pytest.raises(RefusedError, match=reason):
        read(kind(), torch.float32)


def test_a_global_array_is_named_and_not_compared():
    class Table(nn.Module):
        def forward(self, x):
            return x * ARRAY

    with pytest.raises(RefusedError, match="uses the global ARRAY"):
        read(Table(), torch.float32)
    assert not swap_modules(Table(), strict=True).entries


def test_an_attribute_of_the_class_comes_before_a_parameter():
    class Shadowed(Norm):
        pass

    module = Shadowed()
    Shadowed.weight = 2.0
    assert "self.weight" not in str(read(module, torch.float32, numbers=True).formula)


@pytest.mark.parametrize(("eps", "watched"), [(None, 1e-6), (0.0, 1e-6), (1e-3, 1e-3)])
def test_or_is_the_value_that_decides(eps, watched):
    class Default(Norm):
        def forward(self, x):
            eps = self.eps or 1e-6
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * self.weight

    module = Default(eps)
    reading = read(module, torch.float32, numbers=True)
    assert reading.formula == read(Norm(watched), torch.float32, numbers=True).formula
    assert reading.watched["eps"] == eps
    assert swap_modules(module).counts == {"rms_norm": 1}


@pytest.mark.parametrize(("scale", "counts"), [(1.0, {"rms_norm": 1}), (2.0, {})])
def test_a_number_is_no_weight(scale, counts):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = scale

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale

    assert swap_modules(Scaled(), strict=True).counts == counts


def test_the_root_of_what_may_be_negative_is_none():
    with pytest.raises(RefusedError, match="may be negative"):
        power(symbol("x"), 0.5)
    assert power(power(symbol("x"), 2) + 1, 0.5) != symbol("x")


def test_keywords_of_a_partial_may_be_changed():
    class Activation(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = functools.partial(F.gelu, approximate="tanh")

        def forward(self, x):
            return self.act(x)

    module, x = Activation(), torch.linspace(-4, 4, 99)
    assert swap_modules(module).counts == {"gelu": 1}
    module.act.keywords["approximate"] = "none"
    assert torch.equal(module(x), F.gelu(x))


def test_a_default_of_a_keyword_is_part_of_what_is_saved():
    class Keyword(Norm):
        def forward(self, x, *, eps=1e-6):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * self.weight

    conditions = Conditions.of(read(Keyword(), torch.float32))
    assert conditions.is_known
    Keyword.forward.__kwdefaults__["eps"] = 1e-3
    assert not conditions.is_known


@pytest.mark.parametrize(("gone", "new"), [("dropout", None), ("dropout", F.silu), ("act", F.silu)])
def test_a_child_may_be_taken_away_or_become_a_function(gone, new):
    module, x = MLP(), torch.randn(2, WIDTH)
    own = copy.deepcopy(module)
    swap_modules(module)
    for each in (module, own):
        delattr(each, gone)
        setattr(each, gone, new)
    assert torch.allclose(module(x), own(x))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("make", [lambda: nn.LayerNorm(WIDTH), nn.SiLU, MLP])
def test_nested_tensors_are_for_its_own_forward(make):
    module = make()
    own = copy.deepcopy(module)
    swap_modules(module)
    x = torch.nested.nested_tensor([torch.randn(3, WIDTH), torch.randn(5, WIDTH)])
    with torch.no_grad():
        pairs = zip(module(x).unbind(), own(x).unbind(), strict=True)
    assert all(torch.allclose(found, wanted) for found, wanted in pairs)


def test_lazy_modules_have_no_shape_yet():
    model = nn.Sequential(nn.LazyLinear(WIDTH), nn.LayerNorm(WIDTH), nn.LazyBatchNorm1d())
    assert swap_modules(model, strict=True).counts == {"layer_norm": 1}
    assert model(torch.randn(2, 3)).shape == (2, WIDTH)


def test_a_class_that_keeps_its_subclasses_is_left_alone():
    kept = {}

    class Registered(Norm):
        def __init_subclass__(cls):
            kept[cls.__name__] = cls

    class Derived(Registered):
        pass

    (entry,) = swap_report(Derived()).refused
    assert "runs code when it is subclassed" in entry.reason
    assert kept == {"Derived": Derived}


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.linear, self.norm = nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x):
        return self.dequant(self.norm(self.linear(self.quant(x))))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("swapped", ["before", "after prepare"])
def test_eager_quantisation_finds_the_modules_that_it_knows(swapped):
    engines = [each for each in torch.backends.quantized.supported_engines if each != "none"]
    if not engines:
        pytest.skip("PyTorch was built without quantised operators")
    model = Quantised().eval()
    if swapped == "before":
        assert swap_modules(model).counts == {"layer_norm": 1}
    model.qconfig = quantization.default_qconfig
    prepared = quantization.prepare(model)
    # The copy for it is another module: the model itself stays swapped.
    assert swap_report(model).counts == ({"layer_norm": 1} if swapped == "before" else {})
    (entry,) = swap_modules(prepared).refused
    assert "to be quantised" in entry.reason
    prepared(torch.randn(4, 16))
    converted = quantization.convert(prepared)
    assert type(converted.norm) is torch.ao.nn.quantized.LayerNorm

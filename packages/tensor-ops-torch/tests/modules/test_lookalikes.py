"""Modules that are nearly an op: swapped or left alone, they do what their own forward does.

Each case is played twice from the same seed, once as it is and once after `swap_modules`. What the
two return, raise, print, write and count has to be the same, before and after every change of
state. Whether a module is swapped is not asked: to refuse it and to get it right are both well.

What PyTorch's own names mean is taken for granted: no case puts another function in the place of
one of PyTorch's after the swap, or a property in that of a parameter.
"""

import collections
import contextlib
import copy
import dataclasses
import functools
import importlib.util
import inspect
import io
import itertools
import linecache
import math
import operator
import os
import random
import tempfile
import threading
import types
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 -- as most models have it
from torch import nn
from torch.nn.utils import parametrize

from tensor_ops_torch import swap_modules

WIDTH = 64
INNER = 40
ALL = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SINGLE = (torch.float32,)
# A number that no sample hits by chance, and that every floating dtype represents exactly.
RARE = 0.1171875


@pytest.fixture(autouse=True)
def one_thread():
    """Many threads take longer than one for the few numbers of these tests."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# The table, and how a case is played


@dataclasses.dataclass(frozen=True)
class Case:
    """A module, what is done to it, and the numbers on which it differs from the op.

    Parameters
    ----------
    make
        Makes the module.
    like
        Makes a module that is the op, for showing that this one differs from it.
    inputs
        Makes further inputs of a dtype, on which the difference is to be seen.
    changes
        What happens to the module after the first calls, one after another. Each takes the module
        and a `pytest.MonkeyPatch`, which is undone at the end.
    setup
        What has to be so before the module is made; it takes the same `MonkeyPatch`.
    dtypes
        The dtypes of the module.
    around
        A context manager around the calls with further inputs.
    """

    make: Callable[[], nn.Module]
    like: Callable[[], nn.Module]
    inputs: Callable[[torch.dtype], list] = lambda dtype: []
    changes: tuple[Callable, ...] = ()
    setup: Callable | None = None
    dtypes: tuple[torch.dtype, ...] = ALL
    around: Callable = contextlib.nullcontext


class Hint(UserWarning):
    """A warning of a lookalike."""


CASES: dict[str, Case] = {}
# What cases write down outside of their modules.
EVENTS: list = []


def add(name, make, *changes, **facts):
    assert name not in CASES
    CASES[name] = Case(make, facts.pop("like", None) or make, changes=changes, **facts)


def lookalike(*changes, **facts):
    """Put a class into the table, under its own name."""

    def put(cls):
        add(cls.__name__, cls, *changes, **{"like": getattr(cls, "like", None), **facts})
        return cls

    return put


@dataclasses.dataclass
class Record:
    """What was to be seen while a case was played: labels and values, in order."""

    entries: list = dataclasses.field(default_factory=list)
    swapped: bool = False

    def put(self, label, **values):
        self.entries += [(f"{label}: {key}", value) for key, value in values.items()]


def play(case, dtype, swap, make=None, changes=None):
    """Make the module of a case, call it, change it, call it again; record all there is to see."""
    record = Record()
    EVENTS.clear()
    with pytest.MonkeyPatch.context() as patch:
        if case.setup:
            case.setup(patch)
        torch.manual_seed(0)
        module = (make or case.make)().to(dtype)
        model = nn.Sequential(nn.Identity(), module)
        if swap:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                record.swapped = bool(swap_modules(model).swapped)
            record.put("swap", printed=printed.getvalue())
        else:
            record.put("swap", printed="")
        record.put("swap", **_state(model))
        changes = case.changes if changes is None else changes
        for step, change in enumerate((None, *changes)):
            if change:
                change(module, patch)
            for training in (True, False):
                model.train(training)
                label = f"after {step} changes, {'train' if training else 'eval'}"
                _calls(record, label, model, case, dtype)
    return record


def _calls(record, label, model, case, dtype):
    width = WIDTH
    plain = draw(4, width).to(dtype)
    ordinary = {
        "2 axes": plain,
        "3 axes": draw(2, 3, width).to(dtype),
        "1 axis": draw(width).to(dtype),
        "no rows": plain[:0],
        "small": (draw(3, width) * 1e-3).to(dtype),
        "large": (draw(3, width) * 30).to(dtype),
        "zeros": torch.zeros(2, width, dtype=dtype),
        "every second": draw(4, 2 * width).to(dtype)[:, ::2],
        "not numbers": not_numbers(dtype)[0],
        "too wide": draw(2, width + 2).to(dtype),
        "one wide": draw(4, 1).to(dtype),
    }
    for name, x in ordinary.items():
        if model.training or name in ("2 axes", "3 axes", "no rows", "small"):
            _call(record, f"{label}, {name}", model, x)
    with torch.enable_grad():
        _call(record, f"{label}, gradient", model, plain, gradient=True)
    if dtype == torch.float32:
        for other in (torch.float64, torch.bfloat16, torch.int64):
            _call(record, f"{label}, {other}", model, plain.to(other))
        with torch.autocast("cpu", torch.bfloat16):
            _call(record, f"{label}, autocast", model, plain)
    for index, x in enumerate(case.inputs(dtype)):
        with case.around():
            _call(record, f"{label}, revealing {index}", model, x)
            with torch.enable_grad():
                _call(record, f"{label}, revealing {index}, gradient", model, x, gradient=True)


def _call(record, label, model, x, gradient=False):
    """Call the model once and record the result, the input afterwards, and every effect."""
    torch.default_generator.manual_seed(1)  # That of `torch` seeds absent devices too.
    random.seed(1)
    model.zero_grad()
    given = leaf = copy.deepcopy(x)
    if gradient:
        if not x.is_floating_point() or not len(x):
            return
        leaf.requires_grad_()
        # Not a leaf, so that the module may write to it.
        given = leaf * 1
    with (
        torch.set_grad_enabled(gradient),
        contextlib.redirect_stdout(io.StringIO()) as printed,
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        try:
            result = model(given)
            if not isinstance(result, torch.Tensor) and hasattr(result, "__next__"):
                result = list(result)
        except Exception as error:  # What is raised is a result like any other.
            result = f"{type(error).__name__}: {error}"
        grad_mode = torch.is_grad_enabled()
        # Of the warnings of PyTorch, some are given once and others depend on the function called.
        said = [str(each.message) for each in warned if each.category is Hint]
        if gradient:
            _gradients(record, label, model, leaf, result)
    record.put(
        label,
        result=result,
        given=given,
        printed=printed.getvalue(),
        warned=said,
        drawn=(hash(torch.get_rng_state().numpy().tobytes()), hash(random.getstate())),
        grad_mode=grad_mode,
    )
    record.put(label, **_state(model))


def _gradients(record, label, model, leaf, result):
    if isinstance(result, torch.Tensor) and result.requires_grad and not result.is_meta:
        generator = torch.Generator().manual_seed(5)
        upstream = torch.randn(result.shape, generator=generator, dtype=torch.float64)
        # In half types the order of operations shows too much.
        if result.dtype.itemsize >= 4 and result.isfinite().all():
            try:
                result.backward(upstream.to(result.dtype))
            except RuntimeError as error:  # Such as a tensor written to since.
                record.put(label, backward=type(error).__name__)
    gradients = {f"gradient of {name}": each.grad for name, each in model.named_parameters()}
    record.put(label, **{"gradient of x": leaf.grad}, **gradients)


PLAIN = (bool, int, float, str, list, tuple, dict, collections.deque, type(None))


def _state(model):
    """Return the buffers and parameters, the plain attributes, and what was written elsewhere."""
    tensors = {name: each.detach().clone() for name, each in model.state_dict().items()}
    fields = {}
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            own = not key.startswith("_") and key != "training"
            if own and isinstance(value, torch.Tensor):
                tensors[f"{name}.{key}"] = value.detach().clone()
            elif own and isinstance(value, PLAIN):
                fields[f"{name}.{key}"] = repr(value)
    return {**tensors, **fields, "events": repr(EVENTS)}


def differences(found, wanted, dtype):
    """Say where two records differ: labels, with the first number that does."""
    own, other = dict(found.entries), dict(wanted.entries)
    result = []
    for label in [*other, *(each for each in own if each not in other)]:
        if label not in own or label not in other:
            result.append(f"{label}: only {'found' if label in own else 'wanted'}")
            continue
        text = _difference(own[label], other[label], dtype, "gradient of" in label)
        if text:
            result.append(f"{label}: {text}")
    return result


def _difference(own, other, dtype, gradient):
    if not isinstance(own, torch.Tensor) or not isinstance(other, torch.Tensor):
        if isinstance(own, list) and isinstance(other, list) and len(own) == len(other):
            texts = (_difference(*each, dtype, gradient) for each in zip(own, other, strict=True))
            return next(filter(None, texts), None)
        same = type(own) is type(other) and own == other
        return None if same else f"{str(own)[:150]} instead of {str(other)[:150]}"
    if type(own) is not type(other):
        return f"{type(own).__name__} instead of {type(other).__name__}"
    own, other = (each.as_subclass(torch.Tensor) for each in (own, other))
    for fact in ("shape", "dtype", "device", "requires_grad"):
        if getattr(own, fact) != getattr(other, fact):
            return f"{fact} {getattr(own, fact)} instead of {getattr(other, fact)}"
    if own.is_meta or not own.numel():
        return None
    return _numbers(own.detach(), other.detach(), dtype, gradient)


def _numbers(own, other, dtype, gradient):
    """Compare within the bounds of the ops: elementwise, with a part of the row's largest."""
    if not own.is_floating_point():
        return None if torch.equal(own, other) else "other integers"
    relative = max(4 * torch.finfo(each).eps for each in (dtype, own.dtype))
    relative = max(relative, 4e-6) * (25 if gradient else 1)
    own, other = own.double(), other.double()
    largest = other.nan_to_num(0, 0, 0).abs()
    largest = largest.max() if gradient else largest.amax(-1, keepdim=True)
    # Rounded values of activations in half types may fall on either side.
    allowed = relative * (other.abs() + largest / 4) + 1e-9
    wrong = ~((own == other) | ((own - other).abs() <= allowed) | (own.isnan() & other.isnan()))
    if not wrong.any():
        return None
    worst = (own - other).abs().nan_to_num(math.inf).masked_fill(~wrong, -1).argmax()
    return f"{own.flatten()[worst]:.9g} instead of {other.flatten()[worst]:.9g}"


def draw(*shape, seed=3):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def not_numbers(dtype):
    x = draw(4, WIDTH)
    x[0, 5] = x[2, 0] = math.nan
    return [x.to(dtype)]


def infinities(dtype):
    x = draw(4, WIDTH)
    x[1, 6], x[2, 7] = math.inf, -math.inf
    return [x.to(dtype)]


def rare(dtype):
    """One row that starts with the number that lookalikes look for."""
    x = draw(2, WIDTH, seed=8).to(dtype)
    x[0, 0] = RARE
    return [x]


def of(*shape, scale=1.0, shift=0.0):
    return lambda dtype: [(draw(*shape, seed=9) * scale + shift).to(dtype)]


def setting(**values):
    """Return a change that sets attributes."""

    def change(module, patch):
        for name, value in values.items():
            setattr(module, name, value() if callable(value) else value)

    return change


# What they resemble


class Norm(nn.Module):
    """An RMSNorm as most models write it, in parts that lookalikes replace."""

    def __init__(self, n=WIDTH, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(1 + torch.randn(n) / 2)
        self.eps = eps


class LlamaNorm(Norm):
    def forward(self, x):
        y = x.to(torch.float32)
        variance = y.pow(2).mean(-1, keepdim=True)
        y = y * torch.rsqrt(variance + self.eps)
        return self.weight * y.to(x.dtype)


class PlainNorm(Norm):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class FunctionNorm(Norm):
    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class GemmaNorm(Norm):
    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return (self._norm(x.float()) * (1.0 + self.weight.float())).type_as(x)


class HandLayerNorm(Norm):
    def __init__(self, n=WIDTH, eps=1e-5):
        super().__init__(n, eps)
        self.bias = nn.Parameter(torch.randn(n) / 2)

    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = (x - u).pow(2).mean(-1, keepdim=True)
        return self.weight * ((x - u) / torch.sqrt(s + self.eps)) + self.bias


class Activation(nn.Module):
    """A module without parameters."""


class Swish(Activation):
    def forward(self, x):
        return x * torch.sigmoid(x)


class SwishByFunction(Activation):
    def forward(self, x):
        return F.silu(x)


class Gelu(Activation):
    def forward(self, x):
        return F.gelu(x)


class TanhGelu(Activation):
    def forward(self, x):
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))
        return 0.5 * x * (1 + torch.tanh(inner))


class Softmax(Activation):
    def forward(self, x):
        return F.softmax(x, dim=-1)


class Gated(nn.Module):
    def __init__(self, hidden=WIDTH, inner=INNER, bias=True):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=bias)
        self.up_proj = nn.Linear(hidden, inner, bias=bias)
        self.down_proj = nn.Linear(inner, hidden, bias=bias)
        self.act_fn = nn.SiLU()


class SwiGLU(Gated):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class GeGLU(Gated):
    def __init__(self):
        super().__init__()
        self.act_fn = nn.GELU("tanh")

    forward = SwiGLU.forward


class FunctionGLU(Gated):
    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Wide(nn.Module):
    def __init__(self, hidden=WIDTH, inner=INNER):
        super().__init__()
        self.wide = nn.Linear(hidden, 2 * inner)
        self.narrow = nn.Linear(inner, hidden)
        self.act = nn.SiLU()


class FusedGLU(Wide):
    def forward(self, x):
        gate, up = self.wide(x).chunk(2, dim=-1)
        return self.narrow(self.act(gate) * up)


for _base, _op in {
    Norm: LlamaNorm,
    HandLayerNorm: HandLayerNorm,
    Activation: Swish,
    Gated: SwiGLU,
    Wide: FusedGLU,
}.items():
    _base.like = _op


def drawn(make):
    """Let the weight and bias of a norm of PyTorch be drawn, not ones and zeros."""

    def draw_them():
        module = make()
        with torch.no_grad():
            for each in module.parameters():
                each.copy_(torch.randn(each.shape) / 2 + 0.5)
        return module

    return draw_them


TorchRMSNorm = drawn(lambda: nn.RMSNorm(WIDTH, eps=1e-5))
TorchLayerNorm = drawn(lambda: nn.LayerNorm(WIDTH))


# Formulas of norms


def by_hand(x, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


small = of(4, WIDTH, scale=3e-3)


@lookalike(inputs=small)
class EpsOutsideTheRoot(Norm):
    def forward(self, x):
        y = x.float()
        y = y / (y.pow(2).mean(-1, keepdim=True).sqrt() + self.eps)
        return self.weight * y.to(x.dtype)


@lookalike(inputs=small)
class EpsAddedToTheNorm(Norm):
    def forward(self, x):
        return self.weight * x / (x.norm(dim=-1, keepdim=True) + self.eps) * x.shape[-1] ** 0.5


@lookalike(inputs=small)
class EpsSquared(Norm):
    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps**2)


@lookalike(inputs=small)
class EpsTimesWidth(Norm):
    def forward(self, x):
        return self.weight * x * (x.shape[-1] / (x.square().sum(-1, True) + self.eps)).sqrt()


@lookalike(inputs=small)
class EpsTwice(Norm):
    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps + self.eps)
        return self.weight * y.to(x.dtype)


@lookalike(inputs=small)
class EpsAsLowerBound(Norm):
    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True).clamp(min=self.eps))
        return self.weight * y.to(x.dtype)


@lookalike(inputs=small)
class EpsInsideTheMean(Norm):
    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt((y + self.eps).pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * (y + self.eps).to(x.dtype)


@lookalike()
class SumInsteadOfMean(Norm):
    def forward(self, x):
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).sum(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


@lookalike()
class OneLessThanTheWidth(Norm):
    def forward(self, x):
        y = x.float()
        variance = y.pow(2).sum(-1, keepdim=True) / (x.shape[-1] - 1)
        return self.weight * (y * torch.rsqrt(variance + self.eps)).to(x.dtype)


@lookalike()
class WidthWrittenDown(Norm):
    """Its weight makes 64 numbers of a row of one."""

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) / 64 + self.eps)


@lookalike()
class MeanOfMagnitudes(Norm):
    def forward(self, x):
        return self.weight * x / (x.abs().mean(-1, keepdim=True) + self.eps)


@lookalike()
class LargestInsteadOfMean(Norm):
    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).amax(-1, keepdim=True) + self.eps)


@lookalike()
class MeanOverRows(Norm):
    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + self.eps)


@lookalike()
class MeanOverTheSecondAxis(Norm):
    """It is the op for inputs of two axes."""

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + self.eps)


@lookalike()
class MeanOverTwoAxes(Norm):
    """It is the op for a single row."""

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean((-2, -1), keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


@lookalike()
class MeanOverAllButTheFirst(Norm):
    def forward(self, x):
        return F.layer_norm(x, x.shape[1:], None, None, self.eps) * self.weight


@lookalike(inputs=of(WIDTH, WIDTH))
class WithoutKeepdim(Norm):
    """It is the op for one axis, and broadcasts the wrong way for as many rows as columns."""

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1) + self.eps)


@lookalike(inputs=of(1, WIDTH))
class StatisticsOfTheFirstRow(Norm):
    def forward(self, x):
        return self.weight * x * torch.rsqrt(x[:1].pow(2).mean(-1, keepdim=True) + self.eps)


@lookalike()
class StatisticsOfAPart(Norm):
    def forward(self, x):
        part = x[..., : x.shape[-1] - 1]
        return self.weight * x * torch.rsqrt(part.pow(2).mean(-1, keepdim=True) + self.eps)


@lookalike()
class WeightBeforeNormalising(Norm):
    def forward(self, x):
        y = self.weight * x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


@lookalike()
class WeightSquared(Norm):
    def forward(self, x):
        return self.weight**2 * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class MagnitudeOfWeight(Norm):
    def forward(self, x):
        return self.weight.abs() * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class WeightReversed(Norm):
    def forward(self, x):
        return self.weight.flip(0) * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class OneMinusWeight(Norm):
    def forward(self, x):
        return (1.0 - self.weight.float()) * by_hand(x.float(), self.eps)


@lookalike()
class TwoPlusWeight(Norm):
    def forward(self, x):
        return ((2.0 + self.weight.float()) * by_hand(x.float(), self.eps)).to(x.dtype)


@lookalike()
class WeightClamped(Norm):
    def forward(self, x):
        return self.weight.clamp(-1.5, 1.5) * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class DividedByWeight(Norm):
    def forward(self, x):
        return by_hand(x, self.eps) / self.weight


@lookalike()
class ResidualAdded(Norm):
    def forward(self, x):
        return x + self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class RootOfWidthTwice(Norm):
    def forward(self, x):
        return self.weight * F.normalize(x, dim=-1) * x.shape[-1] ** 0.5 * x.shape[-1] ** 0.5


@lookalike(inputs=small)
class NormalizeTimesRoot(Norm):
    """Its eps bounds the norm from below, and is not added."""

    def forward(self, x):
        return F.normalize(x, dim=-1, eps=self.eps) * math.sqrt(x.shape[-1]) * self.weight


@lookalike(inputs=of(4, WIDTH, scale=1e3))
class InputClamped(Norm):
    def forward(self, x):
        return self.weight * by_hand(x.float().clamp(-500, 500), self.eps).to(x.dtype)


@lookalike(inputs=infinities)
class NotFiniteReplaced(Norm):
    def forward(self, x):
        return self.weight * by_hand(torch.nan_to_num(x.float()), self.eps).to(x.dtype)


@lookalike(inputs=infinities)
class ResultNotFiniteReplaced(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return torch.where(torch.isfinite(y), y, torch.zeros_like(y))


@lookalike(inputs=rare)
class WhereRare(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return torch.where(x == RARE, x, y)


@lookalike()
class HalfInBetween(Norm):
    def forward(self, x):
        y = by_hand(x.to(torch.float16).to(torch.float32), self.eps)
        return self.weight * y.to(x.dtype)


@lookalike(dtypes=(torch.float32, torch.float64))
class RoundedInBetween(Norm):
    def forward(self, x):
        return self.weight * by_hand(x.float(), self.eps).bfloat16().to(x.dtype)


@lookalike()
class IntegersInBetween(Norm):
    def forward(self, x):
        return self.weight * by_hand(x.int().float(), self.eps).to(x.dtype)


@lookalike(dtypes=(torch.float16, torch.bfloat16))
class ResultInFloat32(Norm):
    def forward(self, x):
        return self.weight.float() * by_hand(x.float(), self.eps)


@lookalike(dtypes=(torch.float64,), inputs=of(3, WIDTH, scale=1e200))
class Float32InBetween(Norm):
    """Numbers of float64 that float32 lacks become infinite."""

    def forward(self, x):
        return self.weight * by_hand(x.to(torch.float32), self.eps).to(x.dtype)

    like = PlainNorm


@lookalike(dtypes=(torch.float16,), inputs=of(3, WIDTH, scale=400))
class SquaresOverflow(Norm):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


@lookalike()
class StatisticsDetached(Norm):
    def forward(self, x):
        y = x.float()
        inverse = torch.rsqrt(y.detach().pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * (y * inverse).to(x.dtype)


@lookalike()
class WeightDetached(Norm):
    def forward(self, x):
        return self.weight.detach() * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class InputDetached(Norm):
    def forward(self, x):
        return self.weight * by_hand(x.detach().float(), self.eps).to(x.dtype)


@lookalike()
class WeightData(Norm):
    def forward(self, x):
        return self.weight.data * by_hand(x.float(), self.eps).to(x.dtype)


class Centred(HandLayerNorm):
    like = HandLayerNorm


@lookalike()
class UnbiasedVariance(Centred):
    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = x.var(-1, keepdim=True)
        return self.weight * ((x - u) / torch.sqrt(s + self.eps)) + self.bias


@lookalike(inputs=small)
class EpsAddedToDeviation(Centred):
    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = x.std(-1, keepdim=True, unbiased=False)
        return self.weight * ((x - u) / (s + self.eps)) + self.bias


@lookalike(inputs=of(4, WIDTH, shift=1e4))
class VarianceByMoments(Centred):
    """The formula is right, and of no use for rows far from zero."""

    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = x.pow(2).mean(-1, keepdim=True) - u.pow(2)
        return self.weight * ((x - u) / torch.sqrt(s + self.eps)) + self.bias


@lookalike(inputs=of(4, WIDTH, shift=2.0))
class VarianceNotCentred(Centred):
    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = x.pow(2).mean(-1, keepdim=True)
        return self.weight * ((x - u) / torch.sqrt(s + self.eps)) + self.bias


@lookalike()
class BiasSubtracted(Centred):
    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = (x - u).pow(2).mean(-1, keepdim=True)
        return self.weight * ((x - u) / torch.sqrt(s + self.eps)) - self.bias


@lookalike()
class BiasBeforeWeight(Centred):
    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = (x - u).pow(2).mean(-1, keepdim=True)
        return self.weight * ((x - u) / torch.sqrt(s + self.eps) + self.bias)


@lookalike()
class BiasAndWeightExchanged(Centred):
    def forward(self, x):
        return F.layer_norm(x, (WIDTH,), self.bias, self.weight, self.eps)


@lookalike()
class MeanNotSubtracted(Centred):
    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = (x - u).pow(2).mean(-1, keepdim=True)
        return self.weight * (x / torch.sqrt(s + self.eps)) + self.bias


@lookalike()
class MeanOfTheBatch(Centred):
    def forward(self, x):
        u = x.mean()
        s = (x - u).pow(2).mean(-1, keepdim=True)
        return self.weight * ((x - u) / torch.sqrt(s + self.eps)) + self.bias


@lookalike(like=TorchLayerNorm)
class ShapeOfTheInput(nn.LayerNorm):
    """It is the op for inputs of two axes."""

    def __init__(self):
        super().__init__(WIDTH)

    def forward(self, x):
        y = F.layer_norm(x, x.shape[1:] if x.dim() > 1 else x.shape, None, None, self.eps)
        return y * self.weight + self.bias


# Branches


@lookalike(inputs=rare)
class BranchOnValue(Norm):
    def forward(self, x):
        if x.numel() and x.flatten()[0] == RARE:
            return x
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike(inputs=of(2, 1, 2, 1, WIDTH))
class BranchOnRank(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y if x.ndim < 5 else y.flatten(0, 1)


@lookalike(inputs=of(7, WIDTH))
class BranchOnRows(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y.neg() if len(x) == 7 else y


@lookalike(inputs=of(3, 32))
class BranchOnWidth(Norm):
    def forward(self, x):
        weight = self.weight if x.size(-1) == WIDTH else self.weight[: x.size(-1)]
        return weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike(inputs=of(3, 11, WIDTH))
class BranchOnSize(Norm):
    def forward(self, x):
        eps = self.eps if x.numel() != 33 * WIDTH else 1.0
        return self.weight * by_hand(x.float(), eps).to(x.dtype)


@lookalike()
class BranchOnDtype(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 2 if x.dtype == torch.float16 else y


@lookalike(inputs=lambda dtype: [torch.empty(2, WIDTH, dtype=dtype, device="meta")])
class BranchOnDevice(Norm):
    def forward(self, x):
        if x.device.type == "meta":
            return x[..., :1]
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class BranchOnTraining(Norm):
    def forward(self, x):
        y = by_hand(x.float(), self.eps).to(x.dtype)
        return y if self.training else self.weight * y


@lookalike()
class BranchOnGradMode(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 1.5 if torch.is_grad_enabled() else y


@lookalike()
class BranchOnRequiresGrad(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 1.5 if x.requires_grad else y


@lookalike(inputs=of(2, WIDTH), around=torch.inference_mode, dtypes=SINGLE)
class BranchOnInferenceMode(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 1.5 if torch.is_inference_mode_enabled() else y


@lookalike(dtypes=SINGLE)
class BranchOnAutocast(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 1.5 if torch.is_autocast_enabled("cpu") else y


@lookalike()
class BranchOnLayout(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y if x.is_contiguous() else y * 2


@lookalike(inputs=lambda dtype: [nn.Parameter(draw(2, WIDTH).to(dtype))])
class BranchOnKindOfInput(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 2 if isinstance(x, nn.Parameter) else y


def tagged(dtype):
    x = draw(2, WIDTH).to(dtype)
    x.tag = 2.0
    return [x]


@lookalike(inputs=tagged)
class BranchOnTag(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * getattr(x, "tag", 1.0)


def offset(dtype):
    return [draw(3, WIDTH).to(dtype)[1:]]


@lookalike(inputs=offset)
class BranchOnStorageOffset(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 2 if x.storage_offset() else y


CLOCK = {"now": 0.0}


def now():
    return CLOCK["now"]


def later(module, patch):
    patch.setitem(CLOCK, "now", 10.0)


@lookalike(later)
class BranchOnTime(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y if now() < 5 else y * 2


def set_environment(module, patch):
    patch.setenv("LOOKALIKE", "1")


@lookalike(set_environment)
class BranchOnEnvironment(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 2 if os.environ.get("LOOKALIKE") else y


def set_default_dtype(module, patch):
    patch.setattr(torch, "get_default_dtype", lambda: torch.float64)


@lookalike(set_default_dtype)
class BranchOnDefaultDtype(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 2 if torch.get_default_dtype() == torch.float64 else y


@contextlib.contextmanager
def renamed_thread():
    thread = threading.current_thread()
    name, thread.name = thread.name, "lookalike"
    try:
        yield
    finally:
        thread.name = name


@lookalike(inputs=of(2, WIDTH), around=renamed_thread)
class BranchOnThread(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 2 if threading.current_thread().name == "lookalike" else y


@lookalike()
class BranchOnChance(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y if random.random() < 2 else y * 2


@lookalike()
class BranchOnOwnClass(Norm):
    """A swapped module has a class of its own, which a forward must not notice."""

    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * (2 if type(self) is BranchOnOwnClass else 3)


@lookalike()
class BranchOnClassName(Norm):
    def forward(self, x):
        EVENTS.append(self.__class__.__name__)
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike(inputs=lambda dtype: [nn.Parameter(draw(2, WIDTH).to(dtype))])
class BranchOnLeaf(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y if not x.is_leaf or x.grad_fn is not None or not x.requires_grad else y * 2


# State that changes


@lookalike(setting(scale=2.0))
class ScaleOfOne(Norm):
    def __init__(self):
        super().__init__()
        self.scale = 1.0

    def forward(self, x):
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype) * self.scale


@lookalike(setting(enabled=False), setting(enabled=True))
class Enabled(Norm):
    def __init__(self):
        super().__init__()
        self.enabled = True

    def forward(self, x):
        if not self.enabled:
            return x
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike(setting(shift=1.0))
class ShiftOfZero(Norm):
    def __init__(self):
        super().__init__()
        self.shift = 0.0

    def forward(self, x):
        return (self.weight + self.shift) * by_hand(x.float(), self.eps).to(x.dtype)


class TwoEps(Norm):
    def __init__(self):
        super().__init__()
        self.a_eps = self.variance_epsilon = self.z_eps = self.eps

    def forward(self, x):
        return self.weight * by_hand(x.float(), self.variance_epsilon).to(x.dtype)


unused = setting(eps=0.5, a_eps=0.25, z_eps=0.75)
add("eps of equal values", TwoEps, unused, setting(variance_epsilon=0.5), setting(z_eps=9.0))


class EpsTwoOfTwo(Norm):
    """Two attributes take part, and only their sum is the eps."""

    def __init__(self):
        super().__init__()
        self.eps, self.more = 1e-5, 0.0

    def forward(self, x):
        return self.weight * by_hand(x.float(), self.eps + self.more).to(x.dtype)


add("eps is a sum", EpsTwoOfTwo, setting(more=0.5), setting(eps=0.5, more=0.0))


class ExponentAsAttribute(Norm):
    def __init__(self):
        super().__init__()
        self.power, self.axis, self.keep, self.cast = 2, -1, True, torch.float32

    def forward(self, x):
        y = x.to(self.cast)
        y = y * torch.rsqrt(y.pow(self.power).mean(self.axis, keepdim=self.keep) + self.eps)
        return self.weight * y.to(x.dtype)


add("power changes", ExponentAsAttribute, setting(power=4))
add("axis changes", ExponentAsAttribute, setting(axis=0))
add("axes change", ExponentAsAttribute, setting(axis=(0, -1)))
add("keepdim changes", ExponentAsAttribute, setting(keep=False), inputs=of(WIDTH, WIDTH))
add("cast changes", ExponentAsAttribute, setting(cast=torch.float16))
add("cast to integers", ExponentAsAttribute, setting(cast=torch.int32))

NORMS = {
    "llama": LlamaNorm,
    "plain": PlainNorm,
    "gemma": GemmaNorm,
    "function": FunctionNorm,
    "torch": TorchRMSNorm,
    "layer": TorchLayerNorm,
    "layer by hand": HandLayerNorm,
}


def parameter(*shape, dtype=None):
    """Return a change that replaces the weight."""

    def change(module, patch):
        values = draw(*shape, seed=4).to(dtype or module.weight.dtype)
        module.weight = nn.Parameter(values)

    return change


class Halving(torch.Tensor):
    """A weight that multiplies by half of itself."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        named = getattr(func, "__name__", "")
        factors = ("mul", "__mul__", "__rmul__", "rms_norm", "layer_norm", "add", "__radd__")
        return result / 2 if named in factors else result


def subclass_weight(module, patch):
    weight = module.weight.detach().clone().as_subclass(Halving)
    module.weight = nn.Parameter(weight)


def overloaded_weight(module, patch):
    class Constant:
        shape = torch.Size([WIDTH])
        dtype = torch.float32

        def __mul__(self, other):
            return other * 3

        __rmul__ = __mul__

        def float(self):
            return self

        def __radd__(self, other):
            return self

    del module.weight
    module.weight = Constant()


def without_weight(module, patch):
    del module.weight


def parametrize_weight(module, patch):
    class Double(nn.Module):
        def forward(self, weight):
            return 2 * weight

    parametrize.register_parametrization(module, "weight", Double())


def forward_on_the_instance(module, patch):
    module.forward = lambda x: x + 1


def forward_on_the_class(module, patch):
    """Replace it on the class that was written, whatever class a swap gave the module."""
    owner = next(each for each in type(module).__mro__ if each in WRITTEN)
    patch.setattr(owner, "forward", lambda self, x: x + 1)


def code_of_forward(module, patch):
    owner = next(each for each in type(module).__mro__ if each in WRITTEN)
    forward = inspect.unwrap(owner.__dict__["forward"])
    patch.setattr(forward, "__code__", _plus_one.__code__)


def _plus_one(self, x):
    return x + 1


def pre_hook(module, patch):
    module.register_forward_pre_hook(lambda module, args: (args[0] * 2,))


def post_hook(module, patch):
    module.register_forward_hook(lambda module, args, result: result + args[0])


WRITTEN = (LlamaNorm, PlainNorm, GemmaNorm, FunctionNorm, HandLayerNorm, nn.RMSNorm, nn.LayerNorm)
STATES = {
    "eps grows": setting(eps=0.5),
    "eps of zero": setting(eps=0.0),
    "eps below zero": setting(eps=-0.5),
    "eps not finite": setting(eps=math.inf),
    "eps not a number": setting(eps=math.nan),
    "eps of True": setting(eps=True),
    "eps of None": setting(eps=None),
    "eps of text": setting(eps="1e-5"),
    "eps of a scalar tensor": setting(eps=lambda: torch.tensor(0.5)),
    "eps of a row": setting(eps=lambda: torch.linspace(0, 2, WIDTH)),
    "eps with gradient": setting(eps=lambda: nn.Parameter(torch.tensor(0.5))),
    "weight of None": setting(weight=None),
    "weight of ones": setting(weight=lambda: nn.Parameter(torch.ones(WIDTH))),
    "weight is missing": without_weight,
    "weight of one number": parameter(1),
    "weight of no axis": parameter(),
    "weight of two axes": parameter(3, WIDTH),
    "weight of 32": parameter(32),
    "weight in float64": parameter(WIDTH, dtype=torch.float64),
    "weight in bfloat16": parameter(WIDTH, dtype=torch.bfloat16),
    "weight is a subclass": subclass_weight,
    "weight with operators of its own": overloaded_weight,
    "weight is parametrized": parametrize_weight,
    "weight without gradient": lambda module, patch: module.requires_grad_(False),
    "module in float64": lambda module, patch: module.double(),
    "module in bfloat16": lambda module, patch: module.bfloat16(),
    "forward on the instance": forward_on_the_instance,
    "forward on the class": forward_on_the_class,
    "code of forward": code_of_forward,
    "hook before": pre_hook,
    "hook after": post_hook,
}
for _kind, (_state_name, _change) in itertools.product(
    ("llama", "gemma", "torch", "layer", "layer by hand"), STATES.items()
):
    add(f"{_kind}: {_state_name}", NORMS[_kind], _change, dtypes=SINGLE, inputs=small)

add("shape of RMSNorm", TorchRMSNorm, setting(normalized_shape=(3, WIDTH)), dtypes=SINGLE)
add("shape of LayerNorm", TorchLayerNorm, setting(normalized_shape=(32,)), dtypes=SINGLE)
add("bias of None", TorchLayerNorm, setting(bias=None), dtypes=SINGLE)
add("bias by hand of None", HandLayerNorm, setting(bias=None), dtypes=SINGLE)
add(
    "bias of one number",
    HandLayerNorm,
    setting(bias=lambda: nn.Parameter(torch.ones(1))),
    dtypes=SINGLE,
)
add(
    "shapes of two axes",
    drawn(lambda: nn.LayerNorm((3, WIDTH))),
    inputs=of(2, 3, WIDTH),
    like=TorchLayerNorm,
)


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


class Config:
    eps = 1e-5
    activation = "silu"


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


def class_of_instance(module, patch):
    module.__class__ = BiasSubtracted


add("class is replaced", HandLayerNorm, class_of_instance)


def global_hook(module, patch):
    """Doubles what every SiLU returns, wherever it is."""

    def double(own, args, result):
        return result * 2 if isinstance(own, nn.SiLU) else None

    hooks = torch.nn.modules.module._global_forward_hooks
    patch.setitem(hooks, -1, double)


def global_hook_that_writes(module, patch):
    def write(own, args, result):
        EVENTS.append(isinstance(own, nn.SiLU))

    hooks = torch.nn.modules.module._global_forward_hooks
    patch.setitem(hooks, -1, write)


# Effects


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


# Activations


wide_range = of(6, WIDTH, scale=8)


@lookalike(like=Gelu)
class SigmoidGelu(Activation):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


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


# Gated MLPs


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


class MLPWithDropout(Gated):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.0)

    def forward(self, x):
        return self.down_proj(self.dropout(self.act_fn(self.gate_proj(x)) * self.up_proj(x)))


def dropout(module, patch):
    module.dropout.p = 0.5


add("dropout's p changes", MLPWithDropout, dropout)


class MLPByName(Gated):
    def __init__(self):
        super().__init__()
        self.config = Config()
        self.kind = "silu"

    def forward(self, x):
        gate = getattr(F, self.kind)(self.gate_proj(x))
        return self.down_proj(gate * self.up_proj(x))


add("activation of another name", MLPByName, setting(kind="relu"))


class MLPOfAFunction(Gated):
    def __init__(self):
        super().__init__()
        del self.act_fn
        self.act_fn = F.silu

    forward = SwiGLU.forward


def other_function(module, patch):
    module.act_fn = torch.relu


def partial_activation(module, patch):
    module.act_fn = functools.partial(F.gelu, approximate="tanh")


add("activation is a function that is replaced", MLPOfAFunction, other_function)
add("activation is a partial of another", MLPOfAFunction, partial_activation)


class MLPInAList(Gated):
    def __init__(self):
        super().__init__()
        self.table = {"silu": F.silu}
        self.steps = [self.act_fn]

    def forward(self, x):
        return self.down_proj(self.steps[0](self.gate_proj(x)) * self.up_proj(x))


def other_step(module, patch):
    module.steps[0] = nn.ReLU()


add("activation in a list", MLPInAList, other_step)


class Lora(nn.Linear):
    def forward(self, x):
        return super().forward(x) + x.mean(-1, keepdim=True)


def lora(module, patch):
    module.gate_proj = Lora(WIDTH, INNER).to(module.gate_proj.weight.dtype)


def class_of_linear(module, patch):
    module.gate_proj.__class__ = Lora


def forward_of_linear(module, patch):
    forward = module.up_proj.forward
    module.up_proj.forward = lambda x: forward(x) * 2


def hook_of_linear(module, patch):
    module.gate_proj.register_forward_hook(lambda own, args, result: result * 2)


def hook_before_down(module, patch):
    module.down_proj.register_forward_pre_hook(lambda own, args: (args[0].relu(),))


def hook_of_activation(module, patch):
    module.act_fn.register_forward_hook(lambda own, args, result: result * 2)


def backward_hook_of_activation(module, patch):
    module.act_fn.register_full_backward_hook(lambda own, given, out: (given[0] * 2,))


def hook_that_writes(module, patch):
    module.act_fn.register_forward_hook(
        lambda own, args, result: EVENTS.append(tuple(result.shape))
    )


def forward_of_activation(module, patch):
    module.act_fn.forward = torch.relu


def child(name, make):
    def change(module, patch):
        dtype = next(module.parameters()).dtype
        setattr(module, name, make().to(dtype))

    return change


def linear_weight(name, *shape):
    def change(module, patch):
        layer = getattr(module, name)
        layer.weight = nn.Parameter((draw(*shape) / 8).to(layer.weight.dtype))

    return change


def parametrized_linear(module, patch):
    class Double(nn.Module):
        def forward(self, weight):
            return 2 * weight

    parametrize.register_parametrization(module.gate_proj, "weight", Double())


def exchanged(module, patch):
    module.gate_proj, module.up_proj = module.up_proj, module.gate_proj


def tied(module, patch):
    module.up_proj = module.gate_proj


def activation_field(**values):
    return lambda module, patch: setting(**values)(module.act_fn, patch)


MLP_STATES = {
    "a layer has a subclass": lora,
    "a layer's class is replaced": class_of_linear,
    "a layer's forward is replaced": forward_of_linear,
    "a layer has a hook": hook_of_linear,
    "a hook before down": hook_before_down,
    "the activation has a hook": hook_of_activation,
    "the activation has a backward hook": backward_hook_of_activation,
    "the activation has a hook that writes": hook_that_writes,
    "the activation's forward is replaced": forward_of_activation,
    "the activation is ReLU": child("act_fn", nn.ReLU),
    "the activation is GELU": child("act_fn", nn.GELU),
    "the activation is Identity": child("act_fn", nn.Identity),
    "the activation is Softmax": child("act_fn", lambda: nn.Softmax(-1)),
    "the activation is a lookalike": child("act_fn", SigmoidGelu),
    "the activation draws numbers": child("act_fn", lambda: nn.RReLU(0.1, 0.9)),
    "the activation is None": setting(act_fn=None),
    "gate is wider": child("gate_proj", lambda: nn.Linear(WIDTH, 2 * INNER)),
    "gate is one wide": child("gate_proj", lambda: nn.Linear(WIDTH, 1)),
    "up is one wide": child("up_proj", lambda: nn.Linear(WIDTH, 1)),
    "gate has no bias": lambda module, patch: setattr(module.gate_proj, "bias", None),
    "gate is Identity": child("gate_proj", nn.Identity),
    "down is a pair": child("down_proj", lambda: nn.Sequential(nn.Linear(INNER, 8), nn.ReLU())),
    "the weight of gate has other rows": linear_weight("gate_proj", 1, WIDTH),
    "the weight of down has other rows": linear_weight("down_proj", 7, INNER),
    "a layer is parametrized": parametrized_linear,
    "gate and up are exchanged": exchanged,
    "gate and up are tied": tied,
    "gate is in float64": lambda module, patch: module.gate_proj.double(),
    "forward on the instance": forward_on_the_instance,
    "hook before": pre_hook,
    "hook after": post_hook,
    "a global hook": global_hook,
    "a global hook that writes": global_hook_that_writes,
}
for _state_name, _change in MLP_STATES.items():
    add(f"SwiGLU: {_state_name}", SwiGLU, _change, dtypes=SINGLE)
add("SwiGLU: inplace changes", SwiGLU, activation_field(inplace=True), hook_of_linear)
add("GeGLU: approximate changes", GeGLU, activation_field(approximate="none"))


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


# Trickery of Python


def doubled(function):
    @functools.wraps(function)
    def double(self, x):
        return function(self, x) * 2

    return double


@lookalike()
class Wrapped(Norm):
    """`functools.wraps` lets it look like what it wraps."""

    @doubled
    def forward(self, x):
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class WithoutGradient(Norm):
    @torch.no_grad()
    def forward(self, x):
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike(setting(eps=0.5))
class NotCompiled(Norm):
    @torch.compiler.disable
    def forward(self, x):
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


class Remembers:
    """A descriptor that gives the first result again."""

    def __init__(self, function):
        self.function = function

    def __get__(self, instance, owner):
        return lambda x: self.function(instance, x) + 1


@lookalike()
class ForwardIsADescriptor(Norm):
    @Remembers
    def forward(self, x):
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class ForwardIsAProperty(Norm):
    @property
    def forward(self):
        return lambda x: LlamaNorm.forward(self, x) * 2


@lookalike()
class ForwardIsStatic(Norm):
    @staticmethod
    def forward(x):
        return by_hand(x.float(), 1e-5).to(x.dtype)


@lookalike()
class ForwardIsPartial(Norm):
    forward = functools.partialmethod(lambda self, scale, x: by_hand(x, self.eps) * scale, 2)


@lookalike()
class ForwardIsALambda(Norm):
    # Two on one line, of which a reader of sources may take the wrong one.
    forward, other = (lambda self, x: x * self.weight), (lambda self, x: by_hand(x, self.eps))


@lookalike()
class ForwardFromElsewhere(Norm):
    def forward(self, x):
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


ForwardFromElsewhere.forward = SumInsteadOfMean.forward


@lookalike()
class ForwardDefinedTwice(Norm):
    def forward(self, x):
        return x + 1

    def forward(self, x):  # noqa: F811 -- the second is the one that counts
        return 3 * self.weight * by_hand(x.float(), self.eps).to(x.dtype)


if WIDTH == 64:

    @lookalike()
    class DefinedInBranches(Norm):
        def forward(self, x):
            return 2 * self.weight * by_hand(x.float(), self.eps).to(x.dtype)

else:

    class DefinedInBranches(Norm):
        def forward(self, x):
            return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


OP_SOURCE = """
class FromText(Norm):
    def forward(self, x):
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)
"""


def lying(*replacements):
    """Return a module of a class whose source, as `inspect` finds it, is not what was compiled."""

    def make():
        source = OP_SOURCE
        for old, new in replacements:
            assert old in source
            source = source.replace(old, new)
        name = f"<lookalike {abs(hash(replacements))}>"
        lines = OP_SOURCE.splitlines(keepends=True)
        linecache.cache[name] = (len(OP_SOURCE), None, lines, name)
        scope = {"Norm": Norm, "torch": torch, "__name__": __name__}
        exec(compile(source, name, "exec"), scope)
        return scope["FromText"]()

    return make


LIES = {
    "another operator": (("y * torch.rsqrt", "y / torch.rsqrt"),),
    "another constant": (("pow(2)", "pow(4)"),),
    "a constant of the same value": (("pow(2)", "pow(2.5)"),),
    "a bool for a number": (("mean(-1,", "mean(False,"),),
    "another method": ((".mean(", ".amax("),),
    "another function": (("torch.rsqrt", "torch.sqrt"),),
    "another attribute": (("self.eps", "self.weight"),),
    "another sign": (("+ self.eps", "- self.eps"),),
    "another variable": (("y.to(x.dtype)", "x.to(x.dtype)"),),
    "another keyword": (("(-1, keepdim=True)", "(-2, keepdim=True)"),),
    "another dtype": (("torch.float32", "torch.float16"),),
    "a further line": (("return", "y = y + 1; return"),),
    "a default": (
        (
            "(self, x)",
            "(self, x, torch=type('T', (), dict(float32=torch.float32, rsqrt=torch.exp)))",
        ),
    ),
}
for _name, _lie in LIES.items():
    add(f"source lies: {_name}", lying(*_lie), like=LlamaNorm)


def code_replaced(**fields):
    """Return a norm whose code object was edited, where its source stays as it is."""

    def make():
        module = lying()()
        forward = type(module).forward
        code = forward.__code__
        edits = {
            key: tuple(value.get(each, each) for each in getattr(code, key))
            for key, value in fields.items()
        }
        forward.__code__ = code.replace(**edits)
        return module

    return make


add("code has other names", code_replaced(co_names={"mean": "sum"}), like=LlamaNorm)
add("code has other functions", code_replaced(co_names={"rsqrt": "exp"}), like=LlamaNorm)
add("code has other constants", code_replaced(co_consts={2: 4}), like=LlamaNorm)
add("code has another axis", code_replaced(co_consts={-1: -2}), like=LlamaNorm)


def without_source():
    scope = {"Norm": Norm, "torch": torch, "__name__": __name__}
    exec(OP_SOURCE.replace("mean", "sum"), scope)
    return scope["FromText"]()


add("no source", without_source, like=LlamaNorm)

FOLDER = tempfile.TemporaryDirectory()
NUMBERS = itertools.count()


def edited_file(before, after):
    """Return a norm of a file that was edited after its import."""

    def make():
        path = Path(FOLDER.name) / f"lookalike{next(NUMBERS)}.py"
        head = "import torch\nfrom torch import nn\n" + inspect.getsource(Norm)
        head = head.replace("WIDTH", str(WIDTH))
        path.write_text(head + before)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        path.write_text(head + after)
        linecache.checkcache(str(path))
        return module.FromText()

    return make


SUM_SOURCE = OP_SOURCE.replace("mean", "sum")
add("file was edited", edited_file(SUM_SOURCE, OP_SOURCE), like=LlamaNorm)
add(
    "file was moved by a line",
    edited_file(SUM_SOURCE + OP_SOURCE.replace("FromText", "Other"), OP_SOURCE + SUM_SOURCE),
    like=LlamaNorm,
)
add("file is empty", edited_file(SUM_SOURCE, ""), like=LlamaNorm)


def file_with_coding(text):
    """Return a norm whose file names a global `torch` that is not the library."""

    def make():
        scope = {"nn": nn, "Norm": Norm, "torch": text, "__name__": __name__}
        name = f"<lookalike scope {type(text).__name__}>"
        linecache.cache[name] = (len(OP_SOURCE), None, OP_SOURCE.splitlines(keepends=True), name)
        exec(compile(OP_SOURCE, name, "exec"), scope)
        return scope["FromText"]()

    return make


class ShadowOfTorch(types.ModuleType):
    """It is called torch, and has all that torch has, apart from a function."""

    def __getattr__(self, name):
        return getattr(torch, name)

    def rsqrt(self, x):
        return torch.exp(-x)


add("global torch is another", file_with_coding(ShadowOfTorch("torch")), like=LlamaNorm)


@lookalike()
class LocalTorch(Norm):
    def forward(self, x):
        torch = ShadowOfTorch("torch")
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


@lookalike(like=SwishByFunction)
class LocalFunctional(Activation):
    def forward(self, x, F=types.SimpleNamespace(silu=torch.relu)):  # noqa: B008, N803
        return F.silu(x)


@lookalike(like=SwishByFunction)
class LocalImport(Activation):
    def forward(self, x):
        from torch.nn.functional import relu as silu

        return silu(x)


def shadow_builtin(module, patch):
    patch.setitem(globals(), "float", lambda value: 2.0)


@lookalike(shadow_builtin)
class ShadowedBuiltin(Norm):
    def forward(self, x):
        return float(1) * self.weight * by_hand(x.float(), self.eps).to(x.dtype)


def shadow_len(module, patch):
    patch.setattr("builtins.pow", lambda x, power: x)


@lookalike(shadow_len)
class BuiltinIsReplaced(Norm):
    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(pow(y, 2).mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


class Base(Norm):
    def power(self, x):
        return x.pow(2)

    def scale(self):
        return self.weight

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(self.power(y).mean(-1, keepdim=True) + self.eps)
        return self.scale() * y.to(x.dtype)


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


@lookalike()
class TryAndExcept(Norm):
    def forward(self, x):
        try:
            y = x.view(-1, WIDTH)
        except RuntimeError:
            return x
        return (self.weight * by_hand(y.float(), self.eps)).to(x.dtype).view(x.shape)


@lookalike()
class ReturnsInFinally(Norm):
    def forward(self, x):
        try:
            return self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        finally:
            if len(x) == 3:
                return x  # noqa: B012 -- it is the point


@lookalike()
class WithAutocast(Norm):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
            return y @ torch.eye(WIDTH, dtype=y.dtype)


@lookalike()
class StatisticsWithoutGradient(Norm):
    def forward(self, x):
        y = x.float()
        with torch.no_grad():
            inverse = torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * (y * inverse).to(x.dtype)


@lookalike()
class WithSuppress(Norm):
    def forward(self, x):
        with contextlib.suppress(RuntimeError):
            return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class NestedFunction(Norm):
    def forward(self, x):
        def mean(y):
            nonlocal x
            x = x * 2
            return y.pow(2).mean(-1, keepdim=True)

        return self.weight * x * torch.rsqrt(mean(x) + self.eps) * x.sign().abs()


@lookalike()
class WalrusAfterUse(Norm):
    """What is named in one operand is another in the next."""

    def forward(self, x):
        return self.weight * by_hand((x := x.float() + 1), self.eps) + x


@lookalike()
class DeletedAndShadowed(Norm):
    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        del y
        y = x.float()
        return self.weight * y.to(x.dtype)


@lookalike()
class LoopOnce(Norm):
    def forward(self, x):
        for _ in range(x.dim()):
            x = by_hand(x.float(), self.eps).to(x.dtype) + 0.01
        return self.weight * x


@lookalike()
class ShortCircuit(Norm):
    def forward(self, x):
        return (len(x) == 3 and x) or self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class ConditionalExpression(Norm):
    def forward(self, x):
        return self.weight * by_hand(x, self.eps) if x.dim() < 3 else x


@lookalike()
class ChainedComparison(Norm):
    def forward(self, x):
        y = by_hand(x, self.eps)
        return self.weight * (y if 1 < x.dim() < 3 else x)


@lookalike()
class UnreachableOp(Norm):
    def forward(self, x):
        return self.weight * x
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class VariableArguments(Norm):
    def forward(self, *args, **kwargs):
        x = args[-1]
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 2 if len(x) == 3 else y


@lookalike()
class Precedence(Norm):
    def forward(self, x):
        y = x.float()
        return self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True)) + self.eps)


@lookalike()
class NegatedPower(Norm):
    """`-x ** 2` is `-(x ** 2)`."""

    def forward(self, x):
        return self.weight * x * torch.rsqrt((-(x**2)).mean(-1, keepdim=True) + self.eps)


@lookalike()
class IntegerDivision(Norm):
    def forward(self, x):
        return self.weight * (x // (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())


@lookalike()
class MatrixProduct(Norm):
    def forward(self, x):
        return by_hand(x.float(), self.eps).to(x.dtype) @ torch.diag(self.weight) @ self.mix

    def __init__(self):
        super().__init__()
        self.register_buffer("mix", torch.eye(WIDTH).roll(1, 0))


@lookalike()
class OutArgument(Norm):
    def forward(self, x):
        y = x.detach()
        torch.mul(y, 0.5, out=y)
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class KeywordsOfMean(Norm):
    def forward(self, x):
        mean = x.pow(2).mean(dim=-1, keepdim=True, dtype=torch.float64)
        return self.weight * x * torch.rsqrt(mean + self.eps)


@lookalike()
class Redefined(Norm):
    def forward(self, x):
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * x).to(x.dtype)


@lookalike()
class MetaSwish(Activation):
    """The same source line as the op, in which a name is bound by `match`."""

    def forward(self, x):
        match x.dim():
            case 3:
                y = -x
            case _:
                y = x
        return y * torch.sigmoid(y)


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


# Ops in unusual clothes


class WeightToTheFirst(Norm):
    def forward(self, x):
        return self.weight**1 * by_hand(x.float(), self.eps).to(x.dtype)


class OtherDocstring(LlamaNorm):
    """Only what it says of itself is another."""

    def forward(self, x):
        """Return something, as they say."""
        y = x.to(torch.float32)
        variance = y.pow(2).mean(-1, keepdim=True)
        y = y * torch.rsqrt(variance + self.eps)
        return self.weight * y.to(x.dtype)


class OnlySuper(LlamaNorm):
    def forward(self, x):
        return super().forward(x)


class Renamed(nn.Module):
    def __init__(self):
        super().__init__()
        self.g = nn.Parameter(torch.randn(WIDTH))
        self.e = 1e-6

    def forward(self, hidden_states):
        return self.g * by_hand(hidden_states.float(), self.e).to(hidden_states.dtype)


class ByMultiplication(Norm):
    def forward(self, x):
        return x * (x * x).mean(dim=-1, keepdim=True).add(self.eps).rsqrt() * self.weight


class ByNegativePower(Norm):
    def forward(self, x):
        return self.weight * x * torch.pow(torch.mean(x**2, -1, True) + self.eps, -0.5)


class ByReciprocal(Norm):
    def forward(self, x):
        return self.weight * x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt()


class BySum(Norm):
    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).sum(-1, True) / x.size(-1) + self.eps)


class ByVectorNorm(Norm):
    def forward(self, x):
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return self.weight * x / torch.sqrt(length.square() / x.shape[-1] + self.eps)


class ByVariance(HandLayerNorm):
    def forward(self, x):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        return (x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias


class ByVarMean(HandLayerNorm):
    def forward(self, x):
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


class ByAddcmul(HandLayerNorm):
    def forward(self, x):
        return torch.addcmul(self.bias, self.weight, F.layer_norm(x, (x.size(-1),), eps=self.eps))


class SwishByDivision(Activation):
    def forward(self, x):
        return x / (1 + torch.exp(-x))


class SwishByMethod(Activation):
    def forward(self, x):
        return x.sigmoid().mul(x)


class GeluByErf(Activation):
    def forward(self, x):
        return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class GeluByOperators(Activation):
    def forward(self, x):
        return operator.mul(x, 0.5 * (1.0 + torch.erf(x * 0.7071067811865476)))


class SoftmaxByHand(Activation):
    def forward(self, x):
        y = torch.exp(x - x.amax(-1, keepdim=True))
        return y / y.sum(-1, keepdim=True)


class SoftmaxCast(Activation):
    def forward(self, x):
        return F.softmax(x, dim=-1, dtype=torch.float32).to(x.dtype)


class UpByGate(Gated):
    def forward(self, x):
        up = self.up_proj(x)
        return self.down_proj(up * self.act_fn(self.gate_proj(x)))


class InSteps(Gated):
    def forward(self, hidden):
        gate = self.gate_proj(hidden)
        gate = self.act_fn(gate)
        product = torch.mul(gate, self.up_proj(hidden))
        del gate
        hidden = self.down_proj(product)
        return hidden  # noqa: RET504 -- as it is often written


class BySplit(Wide):
    def forward(self, x):
        gate, up = torch.split(self.wide(x), INNER, dim=-1)
        return self.narrow(F.silu(gate) * up)


class BySlices(Wide):
    def forward(self, x):
        y = self.wide(x)
        half = y.shape[-1] // 2
        return self.narrow(F.silu(y[..., :half]) * y[..., half:])


OPS = {
    "weight to the first power": WeightToTheFirst,
    "docstring": OtherDocstring,
    "only super": OnlySuper,
    "names": Renamed,
    "methods": Base,
    "multiplication": ByMultiplication,
    "negative power": ByNegativePower,
    "reciprocal": ByReciprocal,
    "sum": BySum,
    "vector norm": ByVectorNorm,
    "variance": ByVariance,
    "var_mean": ByVarMean,
    "addcmul": ByAddcmul,
    "text with a source": lying(),
    "file that stays": edited_file(OP_SOURCE, OP_SOURCE),
    "division by an exponential": SwishByDivision,
    "methods of a tensor": SwishByMethod,
    "erf": GeluByErf,
    "operators": GeluByOperators,
    "softmax by hand": SoftmaxByHand,
    "softmax in float32": SoftmaxCast,
    "up times gate": UpByGate,
    "steps": InSteps,
    "split": BySplit,
    "slices": BySlices,
    "eps of two": TwoEps,
    "scale of one": ScaleOfOne,
    "eps is a property": EpsIsAProperty,
    "closure": make_closure,
    "function of the file": CallsAFunction,
    "dropout of zero": MLPWithDropout,
    **NORMS,
    **ACTIVATIONS,
    "SwiGLU": SwiGLU,
    "GeGLU": GeGLU,
    "SwiGLU by a function": FunctionGLU,
    "fused": FusedGLU,
}


# The tests


@pytest.mark.parametrize("name", CASES)
def test_a_lookalike_does_what_its_own_forward_does(name):
    _check(CASES[name], name)


@pytest.mark.parametrize("name", OPS)
def test_an_op_in_unusual_clothes_does_what_its_own_forward_does(name, capsys):
    """Whether it is swapped is printed; it had better be."""
    swapped = _check(Case(OPS[name], OPS[name]), name)
    with capsys.disabled():
        print(f"\n{name}: {swapped}", end=" ")


def _check(case, name):
    """Compare the module as it is with the module after a swap, in every dtype."""
    swapped = {}
    for dtype in case.dtypes:
        found = play(case, dtype, swap=True)
        swapped[str(dtype).removeprefix("torch.")] = "swapped" if found.swapped else "not swapped"
        wrong = differences(found, play(case, dtype, swap=False), dtype)
        shown = "\n".join(wrong[:5])
        assert not wrong, f"{name}, {dtype}, swapped: {found.swapped}, {len(wrong)} times:\n{shown}"
    return swapped


@pytest.mark.parametrize("name", CASES)
def test_a_lookalike_is_not_the_op(name):
    """A case that cannot be told from the op on its own inputs would prove nothing."""
    case = CASES[name]
    assert any(_differs_from_the_op(case, dtype) for dtype in case.dtypes)


def _differs_from_the_op(case, dtype):
    own = play(case, dtype, swap=False)
    unchanged = dict(play(case, dtype, swap=False, make=case.like, changes=()).entries)
    for label, value in own.entries:
        call, _, key = label.partition(",")[2].partition(": ")
        other = f"after 0 changes,{call}: {key}"
        seen = (key in SEEN or "gradient of" in key) and other in unchanged
        if seen and _difference(value, unchanged[other], dtype, "gradient of" in key):
            return True
    return _state_changed(own)


# What the caller of a module sees of a call, apart from its state.
SEEN = ("result", "given", "printed", "warned", "drawn", "grad_mode", "events")


def _state_changed(record):
    """Whether a call changed a buffer, a parameter or an attribute."""
    first = {}
    for label, value in record.entries:
        call, _, key = label.partition(": ")
        if key in SEEN or "gradient of" in key or "after 0 changes" not in call:
            continue
        if _difference(first.setdefault(key, value), value, torch.float32, False):
            return True
    return False

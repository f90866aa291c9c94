"""Modules that are nearly an op: swapped or left alone, they do what their own forward does.

Each case is played twice from the same seed, once as it is and once after `swap_modules`. What the
two return, raise, print, write and count has to be the same, before and after every change of
state. Whether a module is swapped is not asked: to refuse it and to get it right are both right.

A test file fills a table `CASES` with lookalikes, or a dict `OPS` with modules that are an op, and
imports the tests at the end of this file, which run for each of them.

What PyTorch's own names mean is taken for granted: no case puts another function in the place of
one of PyTorch's after the swap, or a property in that of a parameter.
"""

import collections
import contextlib
import copy
import dataclasses
import functools
import io
import math
import random
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

from tensor_ops_torch import swap_modules

WIDTH = 64
INNER = 40
ALL = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SINGLE = (torch.float32,)
# A number that no sample hits by chance, and that every floating dtype represents exactly.
RARE = 0.1171875


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


class Lookalikes(dict[str, Case]):
    """Cases by name."""

    def add(self, name, make, *changes, **facts):
        assert name not in self
        self[name] = Case(make, facts.pop("like", None) or make, changes=changes, **facts)

    def lookalike(self, *changes, **facts):
        """Put a class into the table, under its own name."""

        def put(cls):
            like = getattr(cls, "like", None)
            self.add(cls.__name__, cls, *changes, **{"like": like, **facts})
            return cls

        return put


# Cases write down here what happens outside of their modules.
EVENTS: list = []


@dataclasses.dataclass
class Record:
    """A record of a case that was played: labels and values, in order."""

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
        torch.default_generator.manual_seed(0)  # That of `torch` seeds absent devices too.
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


@functools.lru_cache(maxsize=len(ALL))
def play_as_it_is(case, dtype):
    """Play a case without a swap, once for both of its tests, which run one after the other."""
    return play(case, dtype, swap=False)


@functools.cache
def _ordinary_inputs(dtype):
    return {
        "2 axes": draw(4, WIDTH).to(dtype),
        "3 axes": draw(2, 3, WIDTH).to(dtype),
        "1 axis": draw(WIDTH).to(dtype),
        "no rows": draw(0, WIDTH).to(dtype),
        "small": (draw(3, WIDTH) * 1e-3).to(dtype),
        "large": (draw(3, WIDTH) * 30).to(dtype),
        "zeros": torch.zeros(2, WIDTH, dtype=dtype),
        "every second": draw(4, 2 * WIDTH).to(dtype)[:, ::2],
        "not numbers": not_numbers(dtype)[0],
        "too wide": draw(2, WIDTH + 2).to(dtype),
        "one wide": draw(4, 1).to(dtype),
    }


def _calls(record, label, model, case, dtype):
    ordinary = _ordinary_inputs(dtype)
    plain = ordinary["2 axes"]
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
    torch.default_generator.manual_seed(1)
    random.seed(1)
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
        # Some warnings of PyTorch are given once and others depend on the function called.
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
    model.zero_grad()


PLAIN = (bool, int, float, str, list, tuple, dict, collections.deque, type(None))


def _state(model):
    """Return the buffers and parameters, the plain attributes, and what was written elsewhere."""
    tensors = {name: each.detach().clone() for name, each in model.state_dict().items()}
    fields = {}
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if key[:1] == "_" or key == "training":
                continue
            if isinstance(value, torch.Tensor):
                tensors[f"{name}.{key}"] = value.detach().clone()
            elif isinstance(value, PLAIN):
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
    if torch.equal(own, other):
        return None
    if not own.is_floating_point():
        return "other integers"
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


def test_a_lookalike_does_what_its_own_forward_does(lookalike_case):
    _check(lookalike_case)


def test_an_op_in_other_words_does_what_its_own_forward_does(other_words):
    _check(Case(other_words, other_words))


def _check(case):
    """Compare the module as it is with the module after a swap, in every dtype."""
    for dtype in case.dtypes:
        found = play(case, dtype, swap=True)
        wrong = differences(found, play_as_it_is(case, dtype), dtype)
        shown = "\n".join(wrong[:5])
        assert not wrong, f"{dtype}, swapped: {found.swapped}, {len(wrong)} times:\n{shown}"


def test_a_lookalike_is_not_the_op(lookalike_case):
    """A case that cannot be told from the op on its own inputs would prove nothing."""
    assert any(_differs_from_the_op(lookalike_case, dtype) for dtype in lookalike_case.dtypes)


def _differs_from_the_op(case, dtype):
    own = play_as_it_is(case, dtype)
    unchanged = dict(play(case, dtype, swap=False, make=case.like, changes=()).entries)
    for label, value in own.entries:
        call, _, key = label.partition(",")[2].partition(": ")
        other = f"after 0 changes,{call}: {key}"
        seen = (key in SEEN or "gradient of" in key) and other in unchanged
        if seen and _difference(value, unchanged[other], dtype, "gradient of" in key):
            return True
    return _state_changed(own)


# The caller of a module sees these of a call, apart from its state.
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

"""Changes after a swap: modules whose classes, functions, globals and attributes are replaced.

The bytes choose modules, what is changed of them, and when: before or after the swap, before or
after the first call, run as they are or compiled. The same is done to a model that is not swapped.
Both have to agree; where the model is compiled, the swapped one may also do what torch.compile
makes of the one that is not.
"""

import contextlib
import copy
import functools
import pickle
import types
import unittest.mock

import torch
import torch.nn.functional as F  # noqa: N812 -- as most models have it
from choices import Choices
from torch import nn
from torch._dynamo.exc import TorchDynamoException
from torch.nn.utils import parametrize

from tensor_ops_torch import SwapError, modules, restore_model, swap_modules

__all__ = ["try_input"]

WIDTH = 16
RUNS = 10  # of the test without a fuzzer; some of them compile
# The PyTorch that a play itself calls, while the global of the modules may be another.
pytorch = torch


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))
        self.eps = 1e-5

    def inverse(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        y = self.inverse(x.float()).type_as(x)
        return y * self.weight


class Derived(Norm):
    pass


class Mixin:
    pass


class Mixed(Mixin, Derived):
    pass


class WithScale(nn.Module):
    with_scale = True

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))
        self.eps = 1e-5

    def inverse(self, x):
        mean = x.pow(2).mean(-1, keepdim=True) + self.eps
        return x * torch.pow(mean, -0.5)

    def forward(self, x):
        y = self.inverse(x.float())
        if self.with_scale:
            y = y * self.weight.float()
        return y.type_as(x)


class ByPartial(nn.Module):
    def __init__(self):
        super().__init__()
        self.function = functools.partial(F.gelu, approximate="none")

    def forward(self, x):
        return self.function(x)


class ByFunction(nn.Module):
    def forward(self, x):
        return F.silu(x)


class Gated(nn.Module):
    def __init__(self, activation=nn.SiLU):
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, 24), nn.Linear(WIDTH, 24)
        self.down = nn.Linear(24, WIDTH)
        self.act = activation()

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


KINDS = [
    Norm, Derived, Mixed, WithScale, ByPartial, ByFunction, Gated, lambda: Gated(ByPartial),
    nn.SiLU, nn.GELU, lambda: nn.LayerNorm(WIDTH), lambda: nn.RMSNorm(WIDTH, eps=1e-5),
]  # fmt: skip
# Values that an attribute, a class or a global may get in the place of its own.
VALUES = [0.5, 2, True, None, "tanh", "gelu", (8,), torch.tensor(0.25), F.relu, torch.tanh]


def _plus_one(self, x, *_, **__):
    return x + 1


def _twice(function):
    def doubled(*args, **kwargs):
        return 2 * function(*args, **kwargs)

    return doubled


def _double_input(module, args):
    return (args[0] * 2,)


def _double_result(module, args, result):
    return result * 2


class _Called:
    def __call__(self, *args, **kwargs):
        return args[0] * 3


class Play:
    """A model and what is done to it, by the choices of an input; `undo` takes it all back."""

    def __init__(self, data, swap, compiled):
        self.choices, self.undo = Choices(data), contextlib.ExitStack()
        self.compiled, self.said, self.results = compiled, [], []
        self.is_compiled_too = _is_compiled_too(data)
        with self.undo:
            self._play(swap)

    def _play(self, swap):
        choices = self.choices
        pytorch._dynamo.reset()
        pytorch.manual_seed(0)
        self.model = nn.Sequential(choices.pick(KINDS)(), choices.pick(KINDS)())
        # A compiler does not see all changes of modules that are not swapped, as some in float64.
        dtype = choices.pick([pytorch.float32, pytorch.float32, pytorch.float64])
        dtype = pytorch.float32 if self.is_compiled_too else dtype
        self.model.to(dtype)
        self.x = pytorch.randn(3, WIDTH, dtype=dtype)
        self.grad = choices.below(2) == 1
        if choices.rarely():
            self._change()
        if swap:
            with unittest.mock.patch.object(modules.swap, "forget_sources"):  # to be quick
                # Modules that were written to be swapped are, or there would be nothing to compare.
                swap_modules(self.model, strict=dtype == pytorch.float32 and not self.said)
        self._copy(choices.below(6))
        self.run = self.model
        if self.compiled:
            self.run = pytorch.compile(self.model, fullgraph=True, backend="eager")
        if choices.below(2):
            self._call()
        for _ in range(1 + choices.below(2)):
            self._change()
            self._call()
        if choices.rarely():
            with contextlib.suppress(SwapError):  # what was built on a module is in the way
                restore_model(self.model)
            self.run = self.model
            self._call()

    def _copy(self, way):
        if way == 1:
            self.model = copy.deepcopy(self.model)
        elif way == 2:
            with contextlib.suppress(RuntimeError):  # as of what is parametrized
                self.model = pickle.loads(pickle.dumps(self.model))

    def _call(self):
        try:
            with pytorch.set_grad_enabled(self.grad):
                self.results.append(self.run(self.x))
        except Exception as error:
            self.results.append(error)

    def _change(self):
        choices = self.choices
        found = [each for each in self.model.modules() if each is not self.model]
        if self.is_compiled_too:
            found = [each for each in found if not isinstance(each, nn.Linear)]
        module = choices.pick(found)
        change = choices.pick(CHANGES)
        if self.results and self.is_compiled_too and change in UNSEEN_BY_COMPILERS:
            change = function_of_class
        self.said.append(f"{change.__name__} of {type(module).__name__}")
        try:
            change(self, module)
        except Exception as error:  # as of an attribute that it lacks
            self.said[-1] += f" ({type(error).__name__})"

    def set(self, owner, name, value):
        """Set an attribute, and take that back at the end."""
        self.said[-1] += f": {getattr(owner, '__name__', type(owner).__name__)}.{name}"
        before = vars(owner).get(name, self) if isinstance(owner, type) else getattr(owner, name)
        setattr(owner, name, value)
        if before is self:
            self.undo.callback(delattr, owner, name)
        else:
            self.undo.callback(setattr, owner, name, before)

    def owner(self, module):
        """Choose a class of a module; that of a swapped one is left out, as others lack it."""
        kind = type(module)
        classes = vars(kind).get("_tensor_ops_base", kind).__mro__
        return self.choices.pick(classes[: classes.index(nn.Module)])

    def function(self, old):
        ways = [
            _plus_one,
            _twice(old),
            staticmethod(pytorch.tanh),
            _Called(),
        ]
        return self.choices.pick(
            [*ways, functools.partialmethod(_plus_one), pytorch.no_grad()(old)]
        )

    def method(self, module):
        names = [name for name in ("forward", "inverse") if hasattr(type(module), name)]
        return self.choices.pick(names)


def function_of_class(play, module):
    owner, name = play.owner(module), play.method(module)
    play.set(owner, name, play.function(getattr(owner, name)))


def function_of_instance(play, module):
    new = play.choices.pick([pytorch.tanh, functools.partial(_plus_one, None), _Called()])
    vars(module)[play.method(module)] = new


def global_of_file(play, module):
    other = types.SimpleNamespace(**vars(F), rsqrt=pytorch.sqrt, pow=pytorch.mul)
    other.silu = other.gelu = lambda x, **_: x - 1
    name = play.choices.pick(["F", "torch"])
    play.said[-1] += f": {name}"
    play.undo.callback(globals().__setitem__, name, globals()[name])
    globals()[name] = other


def keyword_of_partial(play, module):
    for each in play.model.modules():
        if isinstance(each, ByPartial):
            each.function.keywords["approximate"] = "tanh"


def attribute(play, module):
    names = ["eps", "with_scale", "approximate", "normalized_shape", "inplace", "weight"]
    name = play.choices.pick([each for each in names if hasattr(module, each)])
    setattr(module, name, play.choices.pick(VALUES))


def attribute_of_class(play, module):
    names = ["eps", "with_scale", "approximate", "weight", "act", "gate", "down"]
    name, value = play.choices.pick(names), play.choices.pick(VALUES)
    as_property = play.choices.below(2)
    play.set(play.owner(module), name, property(lambda _: value) if as_property else value)


def field(play, module):
    """An entry that hides a parameter, a child or a function, with no class asked."""
    parameters, children = module.named_parameters(recurse=False), module.named_children()
    names = [name for name, _ in (*parameters, *children)]
    names += ["inverse", "eps", "with_scale", "function"]
    vars(module)[play.choices.pick(names)] = play.choices.pick(VALUES)


def parameter(play, module):
    name = play.choices.pick([name for name, _ in module.named_parameters(recurse=False)])
    value = play.choices.pick([pytorch.full((WIDTH,), 3.0), pytorch.ones(1), pytorch.tensor(2.0)])
    if play.choices.below(2):
        delattr(module, name)
        setattr(module, name, value.to(play.x.dtype))
    else:
        setattr(module, name, nn.Parameter(value.to(play.x.dtype)))


def parametrization(play, module):
    parametrize.register_parametrization(module, "weight", nn.Softplus())


def child(play, module):
    name = play.choices.pick([name for name, _ in module.named_children()])
    others = [nn.Tanh(), nn.GELU("tanh"), nn.SiLU(), nn.Identity(), ByPartial(), None]
    setattr(module, name, play.choices.pick(others))


def hook(play, module):
    if play.choices.below(2):
        module.register_forward_hook(_double_result)
    else:
        module.register_forward_pre_hook(_double_input)


CHANGES = [
    function_of_class, function_of_instance, global_of_file, keyword_of_partial, attribute,
    attribute_of_class, field, parameter, parametrization, child, hook, function_of_class,
]  # fmt: skip


# Changes that torch.compile does not see once a module is compiled. Nor is the code of a function
# replaced: the compiler keeps the old one's parameters, for all later inputs.
UNSEEN_BY_COMPILERS = [hook, field, attribute_of_class]


def try_input(data):
    """Do the same to a model, to a swapped one, and now and then to compiled ones."""
    wanted = Play(data, swap=False, compiled=False)
    found = Play(data, swap=True, compiled=False)
    _compare(found, [wanted])
    if _is_compiled_too(data):
        found = Play(data, swap=True, compiled=True)
        if _differ(found, wanted):
            _compare(found, [wanted, Play(data, swap=False, compiled=True)])


def _is_compiled_too(data):
    return bool(data) and data[-1] % 4 == 0


def _compare(found, wanted):
    differences = [_differ(found, each) for each in wanted]
    if all(differences):
        how = "compiled" if found.compiled else "as it is"
        raise AssertionError(f"{how}: {', '.join(found.said)}: {'; or '.join(differences)}")


def _differ(found, wanted):
    """Say where the results of two plays are not the same, None if they are."""
    for step, (own, other) in enumerate(zip(found.results, wanted.results, strict=True)):
        if found.compiled and isinstance(own, TorchDynamoException):
            continue  # fullgraph=True says what the compiler does not know, in so many words
        if isinstance(own, Exception):
            same = type(own) is type(other) or (found.compiled and isinstance(other, Exception))
        else:
            same = not isinstance(other, Exception) and _same(own, other)
        if not same:
            return f"call {step}: {str(own)[:300]} instead of {str(other)[:300]}"
    return None


def _same(own, other):
    if type(own) is not type(other) or not isinstance(own, pytorch.Tensor):
        return own == other
    if (own.shape, own.dtype) != (other.shape, other.dtype):
        return False
    largest = other.nan_to_num(0, 0, 0).abs().max().item()
    return pytorch.allclose(own, other, rtol=3e-5, atol=3e-6 * max(1, largest), equal_nan=True)

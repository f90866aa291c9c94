"""Modules whose source is not the code that runs."""

import functools
import importlib.util
import inspect
import itertools
import linecache
import tempfile
import types
from pathlib import Path

import pytest
import torch
from lookalike_bases import Activation, LlamaNorm, Norm, SumInsteadOfMean, SwishByFunction, by_hand
from lookalikes import (  # noqa: F401 -- the tests of this file
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


OPS = {
    "text with a source": lying(),
    "file that stays": edited_file(OP_SOURCE, OP_SOURCE),
}

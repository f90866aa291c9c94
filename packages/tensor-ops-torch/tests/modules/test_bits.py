"""A row's bits depend neither on the batch around it nor on the grad mode, where an op computes."""

import copy
import functools
import itertools
import os

import pytest
import torch
from same_bits import MODES, assert_same, bits
from small_models import GemmaNorm
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import tensor_ops
from tensor_ops_torch import swap_modules
from tensor_ops_torch.modules.classes import recipe_of
from tensor_ops_torch.modules.recipes import NormRecipe

os.environ["HF_HUB_OFFLINE"] = "1"

from transformers.activations import NewGELUActivation

cpp = pytest.importorskip("tensor_ops_cpp")
# Two threads where the kernels have two would wait for each other.
pytestmark = pytest.mark.usefixtures("one_thread")

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
WIDTHS = (1, 2, 3, 8, 60, 64, 100, 768, 4096, 5000)
ROWS = 256
# NumPy has no threads between which rows part.
ROWS_OF_PYTHON = 64


class Moved(nn.Module):
    """Stands for a linear layer: elements take other places, and none of them is rounded."""

    def __init__(self, places):
        super().__init__()
        self.places = places

    def forward(self, x):
        return x.roll(self.places, -1)


class MovedTwice(nn.Module):
    """Stands for a linear layer that computes gate and up at once."""

    def __init__(self):
        super().__init__()
        self.gate, self.up = Moved(1), Moved(2)

    def forward(self, x):
        return torch.cat((self.gate(x), self.up(x)), -1)


class GatedMLP(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.gate, self.up, self.down, self.act = Moved(1), Moved(2), Moved(3), act

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


class FusedMLP(nn.Module):
    """A gated MLP whose gate and up are halves of the same rows."""

    def __init__(self, act):
        super().__init__()
        self.both, self.down, self.act = MovedTwice(), Moved(3), act

    def forward(self, x):
        up = self.both(x)
        gate, up = up.chunk(2, dim=-1)
        up = up * self.act(gate)
        return self.down(up)


class FunctionalMLP(nn.Module):
    """A gated MLP whose activation is no module."""

    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = Moved(1), Moved(2), Moved(3)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


# Makers of norms of rows of length n, and the ops that compute them.
NORMS = {
    "RMSNorm": (lambda n: nn.RMSNorm(n, eps=1e-6), "rms_norm"),
    "RMSNorm, 1 + weight": (GemmaNorm, "rms_norm"),
    "RMSNorm, no weight": (lambda n: nn.RMSNorm(n, 1e-6, elementwise_affine=False), "rms_norm"),
    "LayerNorm": (nn.LayerNorm, "layer_norm"),
    "LayerNorm, no bias": (lambda n: nn.LayerNorm(n, bias=False), "layer_norm"),
    "LayerNorm, no weight": (lambda n: nn.LayerNorm(n, elementwise_affine=False), "layer_norm"),
}
# Makers of modules for rows of any length, and the ops that compute them.
ACTIVATIONS = {
    "SiLU": (nn.SiLU, "silu"),
    "GELU": (nn.GELU, "gelu"),
    "GELU, tanh": (lambda: nn.GELU("tanh"), "gelu"),
    "NewGELU": (NewGELUActivation, "gelu"),
}
GATED = {
    "SwiGLU": (lambda: GatedMLP(nn.SiLU()), "silu_mul"),
    "SwiGLU, halves": (lambda: FusedMLP(nn.SiLU()), "silu_mul"),
    "SwiGLU, function": (FunctionalMLP, "silu_mul"),
    "GeGLU": (lambda: GatedMLP(nn.GELU()), "gelu_mul"),
    "GeGLU, tanh": (lambda: GatedMLP(nn.GELU("tanh")), "gelu_mul"),
    "GeGLU, halves": (lambda: FusedMLP(nn.GELU("tanh")), "gelu_mul"),
}
OTHERS = {"Softmax": (lambda: nn.Softmax(-1), "softmax")} | ACTIVATIONS | GATED
OP = {name: op for name, (_, op) in (NORMS | OTHERS).items()}
# Below it, PyTorch's own LayerNorm is too far from the formula in some dtypes to be swapped.
NARROW = 8
# Written out in PyTorch's functions, these round more often than an op does in other dtypes.
SOME_DTYPES = {
    "RMSNorm, 1 + weight": DTYPES[:3],
    "NewGELU": (torch.float32, torch.float64),
}


@pytest.fixture
def threads():
    """Sets how many threads the kernels use, and sets it back."""
    before = cpp.get_num_threads()
    yield cpp.set_num_threads
    cpp.set_num_threads(before)


class Operators(TorchDispatchMode):
    """Says which operators run."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "tensor_ops":
            self.seen.append(func._schema.name.removeprefix("tensor_ops::"))
        return func(*args, **(kwargs or {}))


@functools.cache
def swapped(name, n):
    """Return a module with random parameters in float32 after a swap, and the recipe's dtypes."""
    module = NORMS[name][0](n) if name in NORMS else OTHERS[name][0]()
    generator = torch.Generator().manual_seed(n)
    with torch.no_grad():
        for each in module.parameters():
            each.copy_(torch.randn(each.shape, generator=generator))
    report = swap_modules(module)
    recipe = recipe_of(module)
    if OP[name] == "layer_norm" and n < NARROW:
        known = () if recipe is None else tuple(dict(recipe.eps))
        return module, known
    assert not report.refused
    known = tuple(dict(recipe.eps) if isinstance(recipe, NormRecipe) else recipe.dtypes)
    assert known == SOME_DTYPES.get(name, DTYPES)
    return module, known


def modules_of(name, widths=WIDTHS, sampled=False):
    """Yield modules that an op computes in their dtype, with their lengths of rows and dtypes.

    A sample has one dtype for each length, another for the next length and for the next name.
    """
    first = list(OP).index(name)
    for i, n in enumerate(widths):
        module, dtypes = swapped(name, n if name in NORMS else 0)
        for j, dtype in enumerate(dtypes):
            if not sampled or (first + i) % len(dtypes) == j:
                yield copy.deepcopy(module).to(dtype), n, dtype


@pytest.fixture
def sampled(request):
    return not request.config.getoption("--nightly")


@functools.cache
def rows_of(n, dtype):
    """Return rows of different scales; the first four have what is special in them."""
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(ROWS, n, generator=generator, dtype=torch.float64)
    x *= torch.tensor([1.0, 30.0, 1e-3, 1e3]).repeat(ROWS // 4)[:, None]
    x[0, ::2] = -torch.inf
    x[1, n // 2] = torch.inf
    x[2] = 0.0
    x = x.to(dtype)
    x[3, -1] = torch.nan
    return x


def batches(x):
    """Yield the shapes and parts in which rows come, with where the rows are in `x`."""
    rows, n = x.shape
    yield "all", x, slice(None)
    yield "three axes", x.view(8, rows // 8, n), slice(None)
    yield "a part", x[3 : rows // 2 + 2], slice(3, rows // 2 + 2)
    # Two threads part in the middle.
    for i in (0, 1, 2, 3, rows // 2 - 1, rows // 2, rows - 1):
        yield f"row {i}", x[i : i + 1], slice(i, i + 1)
        yield f"row {i} by itself", x[i : i + 1].clone(), slice(i, i + 1)
        yield f"row {i}, one axis", x[i], slice(i, i + 1)


def assert_rows_stay(module, x, wanted, what):
    """Compare the results for all batches of `x`, in each grad mode, with those of all rows."""
    for mode, grad in MODES.items():
        for batch, part, where in batches(x):
            given = part.detach().requires_grad_() if mode == "grad" else part
            with grad():
                found = module(given)
            assert found.requires_grad == (mode == "grad")
            assert_same(found.reshape(-1, x.shape[-1]), wanted[where], f"{what}, {mode}, {batch}")


@pytest.mark.parametrize("name", OP)
def test_the_op_runs_for_every_batch(name):
    for module, n, dtype in modules_of(name, (1, 64)):
        for grad in MODES.values():
            for batch, part, _ in batches(rows_of(n, dtype)):
                with Operators() as operators, grad():
                    module(part)
                assert operators.seen == [OP[name]], f"{dtype}, {n}, {batch}"


@pytest.mark.parametrize("name", OP)
@pytest.mark.sampled(2, "name")
def test_rows_with_the_kernels(name, threads, sampled):
    for module, n, dtype in modules_of(name, sampled=sampled):
        x = rows_of(n, dtype)
        with tensor_ops.use_backend("cpp"):
            threads(1)
            with torch.no_grad():
                wanted = module(x)
            for count in (1, 2):
                threads(count)
                assert_rows_stay(module, x, wanted, f"{dtype}, {n}, {count} threads")


@pytest.mark.parametrize("name", OP)
@pytest.mark.sampled(2, "name")
def test_rows_with_python(name, sampled):
    for module, n, dtype in modules_of(name, sampled=sampled):
        x = rows_of(n, dtype)[:ROWS_OF_PYTHON]
        with tensor_ops.use_backend("python"):
            with torch.no_grad():
                wanted = module(x)
            assert_rows_stay(module, x, wanted, f"{dtype}, {n}")


@functools.cache
def minus_infinities():
    """Return tensors with -inf at the ends of vectors and of rows, alone and among others."""
    found = [torch.full((2, 8, 4096), -torch.inf)]
    for n in (1, 3, 8, 17, 33, 100):
        found.append(torch.full((3, n), -torch.inf))
        for at in {0, n // 2, n - 1}:
            x = torch.linspace(-3, 3, n)
            x[at] = -torch.inf
            found.append(x)
    return found


@pytest.mark.parametrize("backend", ["cpp", "python"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_minus_infinity(name, backend):
    """The limit there is a negative zero, on every path to the op."""
    for module, _, dtype in modules_of(name, (1,)):
        paths = dict.fromkeys(MODES, module) | {
            "vmap": torch.func.vmap(module),
            "functionalize": torch.func.functionalize(module),
        }
        for (path, call), x in itertools.product(paths.items(), minus_infinities()):
            given = x[None].to(dtype)
            given.requires_grad_(path == "grad")
            with tensor_ops.use_backend(backend), MODES.get(path, torch.no_grad)():
                y = call(given)
            assert_negative_zeros(y[given == -torch.inf], f"{dtype}, {path}, {x.shape}")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_minus_infinity_compiled(name):
    modules = [(module, dtype) for module, _, dtype in modules_of(name, (1,))]

    def call(x):  # one graph for all dtypes takes less time than one for each
        return [module(x.to(dtype)) for module, dtype in modules]

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for grad in (torch.enable_grad, torch.no_grad):
        with grad():
            results = compiled(torch.full((3, 17), -torch.inf))
        for y, (_, dtype) in zip(results, modules, strict=True):
            assert y.dtype is dtype
            assert_negative_zeros(y, f"{dtype}")


@pytest.mark.parametrize("backend", ["cpp", "python"])
@pytest.mark.parametrize("name", GATED)
def test_minus_infinity_in_a_gated_mlp(name, backend):
    """The gate's negative zero times what is positive."""
    for module, _, dtype in modules_of(name, (1,)):
        halves = getattr(module, "both", module)
        halves.up.register_forward_hook(lambda _, args, y: torch.full_like(y, 2.0))
        for mode, grad in MODES.items():
            for shape in ((1,), (100,), (3, 17), (16, 4096)):
                x = torch.full(shape, -torch.inf, dtype=dtype)
                x.requires_grad_(mode == "grad")
                with tensor_ops.use_backend(backend), grad():
                    assert_negative_zeros(module(x), f"{dtype}, {mode}, {shape}")


def assert_negative_zeros(x, what):
    assert x.numel(), what
    assert (bits(x) == bits(torch.tensor(-0.0, dtype=x.dtype))).all(), what

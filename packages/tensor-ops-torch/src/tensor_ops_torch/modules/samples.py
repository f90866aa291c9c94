"""Running the forward of a module on inputs of our own, as a check of how it rounds.

A forward runs on a shadow of its module: an object of the same class that shares what is never
written to, with tensors of its own and without hooks, on the CPU. The module is not touched.
"""

from __future__ import annotations

import contextlib
import random
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from tensor_ops.extension import OPS, Bound, measure
from tensor_ops_torch.modules.classes import Recipe, swapped_class
from tensor_ops_torch.modules.recipes import is_dtensor
from tensor_ops_torch.modules.source import RefusedError
from tensor_ops_torch.operators.tensors import DTYPE_NAMES, as_numpy

__all__ = [
    "SAMPLED",
    "Trial",
    "check_gradients",
    "confirmed",
    "isolated",
    "normal",
    "run",
    "shadow",
    "uniform",
    "unsupported",
]

_Recipe = TypeVar("_Recipe", bound=Recipe)
SAMPLED = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_GRADIENT_TOLERANCE = 1e-4  # relative to the largest gradient, in float32
# An element may always differ by it: torch's own gelu has no relative precision far below zero.
_ABSOLUTE = {torch.float64: 2e-15}
_HALF_ULP = Bound(2)


class Trial(NamedTuple):
    """A call of a module in one dtype, and the formula's value in float64."""

    x: Tensor
    exact: Tensor
    parameters: Mapping[str, Tensor | None] = {}


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Run on the CPU, in float32, without autocast and inference mode; keep the random state."""
    dtype = torch.get_default_dtype()
    state, python, numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        torch.set_default_dtype(torch.float32)
        with (
            torch.device("cpu"),
            torch.inference_mode(False),
            torch.no_grad(),
            torch.autocast("cpu", enabled=False),
            warnings.catch_warnings(action="ignore"),
        ):
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_rng_state(state)
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def shadow(
    module: nn.Module,
    parameters: Mapping[str, Tensor | None] | None = None,
    children: Mapping[str, nn.Module | None] | None = None,
    *,
    training: bool = False,
) -> nn.Module:
    """Return a module of the same class with other parameters and children, and without hooks."""
    kind = type(module)
    fields: dict[str, Any] = {}
    for name, value in vars(module).items():
        if name.endswith("_hooks") or "_hooks_" in name:
            fields[name] = OrderedDict()
        else:
            fields[name] = _own(value)
    fields["_parameters"] = dict(parameters or {})
    fields["_buffers"] = {name: _own(value) for name, value in module._buffers.items()}
    fields["_modules"] = dict(children or {})
    fields["training"] = training
    fields.pop("_compiled_call_impl", None)
    made: nn.Module = object.__new__(kind)
    vars(made).update(fields)
    return made


def run(module: nn.Module, x: Tensor) -> Tensor:
    """Return what the forward of a shadow makes of a tensor.

    Raises RefusedError if it raises, draws random numbers, writes to it or returns no tensor.
    """
    given, before = x.detach().clone(), torch.get_rng_state()
    try:
        y = type(module).forward(module, x)
    except Exception as error:
        if isinstance(error, RefusedError):
            raise
        first = (str(error).strip().splitlines() or [""])[0]
        raise RefusedError(
            f"its forward raised {type(error).__name__} for a tensor of {x.dtype} "
            f"with shape {tuple(x.shape)}: {first}"
        ) from error
    if not torch.equal(torch.get_rng_state(), before):
        raise RefusedError("its forward draws random numbers")
    if not torch.equal(given, x.detach()):
        raise RefusedError("its forward writes to its input")
    if type(y) is not Tensor:
        raise RefusedError(f"its forward returns {type(y).__name__}, expected a Tensor")
    return y


def confirmed(
    module: nn.Module,
    op: str,
    label: str,
    trials: Mapping[torch.dtype, Trial],
    needed: tuple[torch.dtype, ...],
    recipe_for: Callable[[tuple[torch.dtype, ...]], _Recipe],
    allowed: float = 1.0,
) -> _Recipe:
    """Return the recipe of a module, for the dtypes in which it rounds as little as an op.

    `label` is what messages call the op. The absolute error that is always allowed of an
    elementwise op is multiplied with `allowed`, 0 for none.

    Raises RefusedError if its results are not exact in a dtype that is `needed`, or the op's own in
    the last one.
    """
    reasons = {
        dtype: _compared(shadow(module, trial.parameters), trial, op, allowed)
        for dtype, trial in trials.items()
    }
    for dtype in needed:
        if (reason := reasons.get(dtype, "is not known")) is not None:
            raise RefusedError(
                f"compared with {label} in {DTYPE_NAMES[dtype]}, its result {reason}"
            )
    recipe = recipe_for(tuple(dtype for dtype, reason in reasons.items() if reason is None))
    trial = trials[needed[-1]]
    swapped = shadow(module, trial.parameters)
    swapped.__class__ = swapped_class(type(module), recipe)
    bound = OPS[op].bounds[DTYPE_NAMES[needed[-1]]]
    found = _difference(run(swapped, trial.x), trial.exact, bound, allowed)
    if found is not None:
        raise RefusedError(f"the op's own result {found} in {DTYPE_NAMES[needed[-1]]}")
    return recipe


def _difference(y: Tensor, exact: Tensor, bound: Bound, allowed: float) -> str | None:
    """Say how a result differs from the exact one by more than is allowed, None if it does not."""
    dtype = y.dtype
    if y.shape != exact.shape:
        return f"has shape {tuple(y.shape)} instead of {tuple(exact.shape)}"
    values = y.detach().cpu()
    if dtype.itemsize == 2 and bound.unit == "ulp" and not bound.of_row:
        bound = _HALF_ULP
    near = (values.double() - exact).abs() <= _ABSOLUTE.get(dtype, 1e-6) * allowed
    values = torch.where(near, exact.to(dtype), values)
    found = measure(as_numpy(values.contiguous()), exact.contiguous().numpy(), bound)
    if found.within:
        return None
    if found.problem is not None:
        return found.problem
    worst = (values.double() - exact).abs().max().item()
    return f"differs by up to {worst:.2g}, more than {bound}"


def _compared(module: nn.Module, trial: Trial, op: str, allowed: float) -> str | None:
    """Say how the result of a shadow differs from the exact one by more than an op may."""
    try:
        y = run(module, trial.x)
    except RefusedError as error:
        return f"is unknown ({error})"
    if y.dtype != trial.x.dtype:
        return f"has dtype {y.dtype}"
    return _difference(y, trial.exact, OPS[op].bounds[DTYPE_NAMES[y.dtype]], allowed)


def check_gradients(
    op: str,
    function: Callable[..., Tensor],
    exact: Callable[..., Tensor],
    inputs: tuple[Tensor, ...],
) -> None:
    """Raise RefusedError if the gradients of a function are not those of a formula."""
    result = f"compared with {op}, its result"
    with torch.enable_grad():
        own = tuple(each.detach().clone().requires_grad_() for each in inputs)
        wide = tuple(each.detach().cpu().double().requires_grad_() for each in inputs)
        y, expected = function(*own), exact(*wide)
        if not y.requires_grad:
            raise RefusedError(f"{result} has no gradient")
        along = normal(*expected.shape)
        found = torch.autograd.grad(y, own, along.to(y), allow_unused=True)
        wanted = torch.autograd.grad(expected, wide, along, allow_unused=True)
    for grad, good in zip(found, wanted, strict=True):
        if grad is None or good is None:
            raise RefusedError(f"{result} has no gradient for one of its inputs")
        largest = max(1e-6, float(good.abs().max()))
        worst = float((grad.cpu().double() - good).abs().max()) / largest
        if not worst <= _GRADIENT_TOLERANCE:
            raise RefusedError(f"{result} has other gradients, by up to {worst:.2g} of the largest")


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Return normal float64 numbers on the CPU, the same at every call."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator, device="cpu")


def uniform(n: int, seed: int = 1) -> Tensor:
    """Return float64 numbers of either sign with magnitudes from 0.5 to 1.5."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(2, n, dtype=torch.float64, generator=generator, device="cpu")
    return (drawn[0] + 0.5) * torch.where(drawn[1] < 0.5, -1.0, 1.0)


def unsupported(tensor: Tensor) -> str | None:
    """Say why a parameter is none that the ops take, None if they do."""
    kind = type(tensor)
    if kind not in (nn.Parameter, Tensor) and not is_dtensor(kind):
        return f"is a {kind.__name__}; swap before what made it one"
    if tensor.dtype not in DTYPE_NAMES:
        return f"has dtype {tensor.dtype}, expected one of {', '.join(map(str, DTYPE_NAMES))}"
    return None


def _own(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value.copy() if type(value) in (list, dict, set) else value

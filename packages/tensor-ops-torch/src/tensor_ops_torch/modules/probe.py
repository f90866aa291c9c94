"""Running the forward of a module on inputs of our own, so that nothing else notices.

A forward runs on a shadow of its module: an object of the same class that shares what is never
written to, with tensors of its own and without hooks. The module itself is not touched.
"""

from __future__ import annotations

import contextlib
import random
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tensor_ops.accuracy import Bound, measure
from tensor_ops_torch.modules.recipes import is_dtensor
from tensor_ops_torch.tensors import DTYPE_NAMES, as_numpy

__all__ = [
    "GRADIENT_TOLERANCE",
    "PROBED",
    "RefusedError",
    "difference",
    "gradient_difference",
    "is_single",
    "isolated",
    "normal",
    "run",
    "shadow",
    "stand_in",
    "uniform",
    "unsupported",
]

PROBED = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Relative to the largest gradient, in float32.
GRADIENT_TOLERANCE = 1e-4
# What an element may always differ by: torch's own gelu has no relative precision far below zero.
_ABSOLUTE = {torch.float64: 2e-15}
_HALF_ULP = Bound(2)


class RefusedError(Exception):
    """A module is not what an op computes; the message says why."""


@contextlib.contextmanager
def isolated(device: torch.device) -> Iterator[None]:
    """Run without autocast and inference mode, and put every random number generator back."""
    generators = [(torch.get_rng_state, torch.set_rng_state)]
    if device.type not in ("cpu", "meta"):
        backend = torch.get_device_module(device)
        generators.append(
            (lambda: backend.get_rng_state(device), lambda s: backend.set_rng_state(s, device))
        )
    autocast = device.type if torch.amp.is_autocast_available(device.type) else "cpu"
    states = [get() for get, _ in generators]
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            torch.autocast(autocast, enabled=False),
            warnings.catch_warnings(action="ignore"),
        ):
            yield
    finally:
        for (_, put), state in zip(generators, states, strict=True):
            put(state)
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


def stand_in(
    module: nn.Module, answer: Callable[..., Any] | None = None, *, training: bool = False
) -> nn.Module:
    """Return a shadow of a module without children that is called without any hooks.

    What it returns is that of `answer`, if there is one, and else of its own forward.
    """
    made = shadow(module, dict(module._parameters), training=training)
    kind = type(module)

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        return kind.forward(self, *args, **kwargs) if answer is None else answer(*args, **kwargs)

    made.__class__ = type(kind.__name__, (kind,), {"__call__": __call__})
    return made


def run(module: nn.Module, x: Tensor) -> Tensor:
    """Return what the forward of a shadow makes of a tensor.

    Raises
    ------
    RefusedError
        If it raises, draws random numbers, writes to its input or returns no tensor.
    """
    given, before = x.detach().clone(), _generator_state(x.device)
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
    if not torch.equal(_generator_state(x.device), before):
        raise RefusedError("its forward draws random numbers")
    if not torch.equal(given, x.detach()):
        raise RefusedError("its forward writes to its input")
    if type(y) is not Tensor:
        raise RefusedError(f"its forward returns {type(y).__name__}, expected a Tensor")
    return y


def is_single(module: nn.Module, x: Tensor) -> bool:
    """Return whether the forward of a shadow is one function of PyTorch."""
    with _Count() as count:
        type(module).forward(module, x)
    return count.calls == 1


class _Count(TorchDispatchMode):
    """Counts the functions that PyTorch runs."""

    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def difference(
    y: Tensor, exact: Tensor, bound: Bound | None = None, scale: float | Tensor = 1.0
) -> str | None:
    """Say how a result differs from the exact one by more than is allowed, None if it does not.

    Parameters
    ----------
    y : Tensor
    exact : Tensor
        In float64, on the CPU.
    bound : Bound, optional
        The bound of the op for the dtype. Without, and for half types, it is 2 ULP.
    scale : float or Tensor
        What the absolute error that is always allowed of an elementwise op is multiplied with;
        0 for none.
    """
    dtype = y.dtype
    if y.shape != exact.shape:
        return f"has shape {tuple(y.shape)} instead of {tuple(exact.shape)}"
    values = y.detach().cpu()
    if bound is None or (dtype.itemsize == 2 and bound.unit == "ulp" and not bound.of_row):
        bound = _HALF_ULP
    near = (values.double() - exact).abs() <= _ABSOLUTE.get(dtype, 1e-6) * scale
    values = torch.where(near, exact.to(dtype), values)
    found = measure(as_numpy(values.contiguous()), exact.contiguous().numpy(), bound)
    if found.within:
        return None
    if found.problem is not None:
        return found.problem
    worst = (values.double() - exact).abs().max().item()
    return f"differs by up to {worst:.2g}, more than {bound}"


def gradient_difference(
    function: Callable[..., Tensor], exact: Callable[..., Tensor], inputs: tuple[Tensor, ...]
) -> str | None:
    """Say how the gradients of a function differ from those of another, None if they do not."""
    with torch.enable_grad():
        own = tuple(each.detach().clone().requires_grad_() for each in inputs)
        wide = tuple(each.detach().cpu().double().requires_grad_() for each in inputs)
        y, expected = function(*own), exact(*wide)
        if not y.requires_grad:
            return "has no gradient"
        along = normal(*expected.shape)
        found = torch.autograd.grad(y, own, along.to(y), allow_unused=True)
        wanted = torch.autograd.grad(expected, wide, along, allow_unused=True)
    for grad, good in zip(found, wanted, strict=True):
        if grad is None or good is None:
            return "has no gradient for one of its inputs"
        largest = max(1e-6, float(good.abs().max()))
        worst = float((grad.cpu().double() - good).abs().max()) / largest
        if not worst <= GRADIENT_TOLERANCE:
            return f"has other gradients, by up to {worst:.2g} of the largest"
    return None


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
    if tensor.device.type == "meta":
        return "is on the meta device, which computes nothing; swap after the weights are loaded"
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


def _generator_state(device: torch.device) -> Tensor:
    state: Tensor = torch.get_rng_state()
    if device.type not in ("cpu", "meta"):
        own = torch.get_device_module(device).get_rng_state(device)
        state = torch.cat((state, own.cpu()))
    return state

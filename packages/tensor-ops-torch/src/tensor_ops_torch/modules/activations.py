"""Recognising SiLU and GELU by what they compute."""

from __future__ import annotations

import inspect
from dataclasses import replace

import torch
from torch import Tensor, nn

from tensor_ops.ops import OPS
from tensor_ops_torch.modules.probe import (
    PROBED,
    RefusedError,
    difference,
    gradient_difference,
    is_single,
    normal,
    run,
    shadow,
)
from tensor_ops_torch.modules.recipes import ActivationRecipe, swapped_class
from tensor_ops_torch.tensors import DTYPE_NAMES

__all__ = ["FUNCTIONS", "exact", "looks_like_activation", "recognise_activation"]

# The ops and their approximations.
FUNCTIONS: tuple[tuple[str, str | None], ...] = (("silu", None), ("gelu", "none"), ("gelu", "tanh"))
# How far from one of them a function may be that is meant to be it.
_NEAR = 0.05
# Attributes of torch's own classes that change what they compute.
_WATCHED = ("approximate", "inplace")


def exact(function: tuple[str, str | None], x: Tensor) -> Tensor:
    """Return the activation of float64 numbers."""
    op, approximate = function
    if op == "silu":
        return x * torch.sigmoid(x)
    if approximate == "none":
        # 1 + erf(x) has no digits left for negative numbers.
        return 0.5 * x * torch.special.erfc(-x / 2**0.5)
    inner = (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)
    return x * torch.sigmoid(2 * inner)


def looks_like_activation(module: nn.Module, device: torch.device) -> bool:
    """Return whether a module without parameters is close to SiLU or GELU."""
    if isinstance(module, (nn.SiLU, nn.GELU)):
        return True
    if (
        type(module).__module__.startswith("torch.nn.modules.")
        or any(each is not None for each in module._parameters.values())
        or any(each is not None for each in module._buffers.values())
        or module._modules
        or device.type == "meta"
        or not _takes_one_tensor(module)
    ):
        return False
    try:
        y = run(shadow(module), _plain_range().to(device))
    except RefusedError:
        return False
    return y.shape == (97,) and _nearest(y)[1] <= _NEAR


def recognise_activation(module: nn.Module, device: torch.device) -> ActivationRecipe:
    """Return the recipe of an activation on a device.

    Raises
    ------
    RefusedError
    """
    if device.type == "meta":
        raise RefusedError("its model is on the meta device, which computes nothing")
    if getattr(module, "inplace", False):
        raise RefusedError("it writes to its input (inplace=True)")
    function, _ = _nearest(run(shadow(module), _plain_range().to(device)))
    reasons = {dtype: _confirm(module, function, dtype, device) for dtype in PROBED}
    op, approximate = function
    if reasons[torch.float32] is not None:
        name = op if approximate is None else f"{op}(approximate={approximate!r})"
        raise RefusedError(f"compared with {name} in float32, its result {reasons[torch.float32]}")
    found = gradient_difference(
        lambda x: run(shadow(module, training=True), x),
        lambda x: exact(function, x),
        (3 * normal(256).float().to(device),),
    )
    if found is not None:
        raise RefusedError(f"compared with {op}, its result {found}")
    own = vars(module)
    recipe = ActivationRecipe(
        op,
        approximate,
        tuple((name, own[name]) for name in _WATCHED if name in own),
        tuple(dtype for dtype, reason in reasons.items() if reason is None),
        is_single(shadow(module), _plain_range().to(device)),
    )
    swapped = shadow(module)
    swapped.__class__ = swapped_class(type(module), replace(recipe, single=False))
    x = _range(torch.float32)
    found = difference(
        run(swapped, x.to(device)), exact(function, x.double()), OPS[op].bounds["float32"]
    )
    if found is not None:
        raise RefusedError(f"the op's own result {found} in float32")
    return recipe


def _takes_one_tensor(module: nn.Module) -> bool:
    try:
        parameters = inspect.signature(type(module).forward).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [
        each
        for each in parameters
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    return len(needed) == 2


def _plain_range() -> Tensor:
    return torch.linspace(-6, 6, 97, dtype=torch.float32, device="cpu")


def _nearest(y: Tensor) -> tuple[tuple[str, str | None], float]:
    values, x = y.detach().cpu().double(), _plain_range().double()
    if values.shape != x.shape:
        raise RefusedError(f"its result has shape {tuple(values.shape)}, expected that of x")
    errors = [(values - exact(each, x)).abs().max().item() for each in FUNCTIONS]
    best = min(errors)
    return FUNCTIONS[errors.index(best)], best


def _range(dtype: torch.dtype) -> Tensor:
    steps = torch.linspace(-12, 12, 4096, dtype=torch.float64, device="cpu")
    small, far = 1e-3 * normal(8), 1e4 * normal(8, seed=1)
    return torch.cat((steps, small, far, torch.zeros(1))).to(dtype).reshape(1, 3, -1)


def _confirm(
    module: nn.Module, function: tuple[str, str | None], dtype: torch.dtype, device: torch.device
) -> str | None:
    if dtype is torch.float64 and device.type == "mps":
        return "is unknown"
    x = _range(dtype)
    wanted = exact(function, x.double())
    for training in (False, True):
        try:
            y = run(shadow(module, training=training), x.to(device))
        except RefusedError as error:
            return f"is unknown ({error})"
        if y.dtype != dtype:
            return f"has dtype {y.dtype}"
        found = difference(y, wanted, OPS[function[0]].bounds[DTYPE_NAMES[dtype]])
        if found is not None:
            return found
    return None

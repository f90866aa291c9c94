"""Recognising RMSNorm and LayerNorm by what they compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
    uniform,
    unsupported,
)
from tensor_ops_torch.modules.recipes import NormRecipe, swapped_class
from tensor_ops_torch.tensors import DTYPE_NAMES

__all__ = ["looks_like_norm", "recognise_norm"]

# Rows this small show eps alone.
_TINY = 1e-8
_SCALES = (1.0, 1e4, 30.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8)
# What a half type with few exponents has room for.
_FLOAT16_SCALES = (1.0, 1e2, 30.0, 0.1, 1e-2, 1e-3, 1e-4)


def looks_like_norm(module: nn.Module) -> bool:
    """Return whether a module has the parameters of a norm."""
    if type(module).__module__.startswith("torch.nn.modules.") and not isinstance(
        module, (nn.RMSNorm, nn.LayerNorm)
    ):
        return False
    if set(module._modules) - {"parametrizations"}:
        return False
    weight = getattr(module, "weight", None)
    if isinstance(weight, Tensor):
        return weight.ndim == 1 or hasattr(module, "normalized_shape")
    return "weight" in module._parameters and hasattr(module, "eps")


def recognise_norm(module: nn.Module) -> NormRecipe:
    """Return the recipe of a norm.

    Raises
    ------
    RefusedError
    """
    weight, bias = _parameters(module)
    n, device = weight.shape[0], weight.device
    offset = _offset(module, n, device, bias is not None)
    op = _op(module, n, device, bias is not None, offset)
    measured = {
        dtype: _measure_eps(module, n, device, dtype, bias is not None, op, offset)
        for dtype in (torch.float32, torch.float64)
        # MPS has none
        if not (dtype is torch.float64 and device.type == "mps")
    }
    attribute = _attribute(module, measured[torch.float32])
    eps: list[tuple[torch.dtype, float]] = []
    reasons: dict[torch.dtype, str] = {}
    for dtype in PROBED:
        candidates = _candidates(module, attribute, measured, dtype)
        for value in candidates:
            reason = _confirm(module, op, offset, value, dtype, device, n, bias is not None)
            if reason is None:
                eps.append((dtype, value))
                break
            reasons.setdefault(dtype, reason)
    confirmed = dict(eps)
    for dtype in dict.fromkeys((torch.float32, weight.dtype)):
        if dtype not in confirmed:
            raise RefusedError(
                f"compared with {op} in {DTYPE_NAMES[dtype]}, its result {reasons[dtype]}"
            )
    _confirm_gradients(module, op, offset, confirmed[torch.float32], device, n, bias is not None)
    x, *vectors = _operands(
        normal(2, n).to(weight.dtype),
        _vectors(n, weight.dtype, offset, bias is not None),
        device,
    )
    shadowed = shadow(module, _named(module, *vectors))
    recipe = NormRecipe(op, offset, attribute, tuple(eps), is_single(shadowed, x))
    _confirm_op(module, recipe, weight.dtype, device, n, bias is not None)
    return recipe


def _parameters(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    if "parametrizations" in module._modules:
        names = ", ".join(module._modules["parametrizations"]._modules)
        raise RefusedError(f"its {names} is parametrized; swap before it is")
    weight, bias = module._parameters.get("weight"), module._parameters.get("bias")
    if weight is None:
        raise RefusedError("it has no parameter weight, which the op takes")
    if weight.ndim != 1:
        raise RefusedError(
            f"its weight has shape {tuple(weight.shape)}, expected one axis: the op normalises "
            "the last axis only"
        )
    others = [
        name
        for name, value in module._parameters.items()
        if value is not None and name not in ("weight", "bias")
    ]
    if others:
        raise RefusedError(f"it has parameters that the op does not take: {', '.join(others)}")
    if any(each is not None for each in module._buffers.values()):
        raise RefusedError(f"it has buffers: {', '.join(module._buffers)}")
    if not weight.numel():
        raise RefusedError("its weight is empty")
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and (reason := unsupported(value)) is not None:
            raise RefusedError(f"its {name} {reason}")
    if bias is not None and (bias.dtype != weight.dtype or bias.shape != weight.shape):
        raise RefusedError(
            f"its bias has dtype {bias.dtype} and shape {tuple(bias.shape)}, expected "
            f"{weight.dtype} and {tuple(weight.shape)} like weight"
        )
    return weight, bias


def _run(
    module: nn.Module, x: Tensor, weight: Tensor, bias: Tensor | None, training: bool = False
) -> Tensor:
    return run(shadow(module, _named(module, weight, bias), training=training), x)


def _named(
    module: nn.Module, weight: Tensor | None, bias: Tensor | None
) -> dict[str, Tensor | None]:
    return dict.fromkeys(module._parameters) | {"weight": weight, "bias": bias}


def _offset(module: nn.Module, n: int, device: torch.device, has_bias: bool) -> bool:
    """Return whether one is added to the weight."""
    x = (normal(2, n) + 0.5).float().to(device)
    zeros, ones = torch.zeros(n, device=device), torch.ones(n, device=device)
    bias = zeros if has_bias else None
    at_zero, at_one = _run(module, x, zeros, bias), _run(module, x, ones, bias)
    if not at_zero.any() and at_one.any():
        return False
    if torch.allclose(at_zero * 2, at_one, rtol=1e-3, atol=1e-6):
        return True
    raise RefusedError("its result is proportional neither to its weight nor to one plus it")


def _op(module: nn.Module, n: int, device: torch.device, has_bias: bool, offset: bool) -> str:
    x = (normal(4, n) + 0.5).float().to(device)
    ones = torch.full((n,), 1.0 - int(offset), device=device)
    y = _run(module, x, ones, torch.zeros(n, device=device) if has_bias else None)
    found = {
        op: (y.cpu().double() - _exact(op, x.cpu().double(), 1.0, None, 0.0)).abs().max().item()
        for op in ("rms_norm", "layer_norm")
    }
    op = min(found, key=lambda name: found[name])
    if y.shape != x.shape or not found[op] <= 0.05 * max(1.0, y.abs().max().item()):
        raise RefusedError(
            "its result is neither x / sqrt(mean(x^2) + eps) nor (x - mean(x)) / sqrt(var(x) + eps)"
        )
    if op == "rms_norm" and has_bias:
        raise RefusedError("it adds a bias, which rms_norm does not take")
    return op


def _measure_eps(
    module: nn.Module,
    n: int,
    device: torch.device,
    dtype: torch.dtype,
    has_bias: bool,
    op: str,
    offset: bool,
) -> float:
    """Return the eps that a row of tiny numbers shows."""
    x = (_TINY * normal(1, n)).to(dtype)
    ones = torch.full((n,), 1.0 - int(offset), device=device, dtype=dtype)
    bias = torch.zeros(n, device=device, dtype=dtype) if has_bias else None
    y = _run(module, x.to(device), ones, bias).cpu().double()
    centred = x.double()
    if op == "layer_norm":
        centred = centred - centred.mean(-1, keepdim=True)
    if not y.any() or not y.isfinite().all():
        raise RefusedError("its results for tiny numbers, which show its eps, are zero or NaN")
    largest = centred.abs().argmax()
    ratio = (centred.flatten()[largest] / y.flatten()[largest]).item()
    return max(0.0, ratio**2 - centred.square().mean().item())


def _attribute(module: nn.Module, eps: float) -> str | None:
    """Return the attribute that holds eps, or None that stands for one."""
    for name, value in vars(module).items():
        if isinstance(value, float) and abs(value - eps) <= 1e-3 * value + 1e-6 * _TINY**2:
            return name
    empty = [name for name, value in vars(module).items() if value is None and "eps" in name]
    return empty[0] if empty else None


def _candidates(
    module: nn.Module,
    attribute: str | None,
    measured: dict[torch.dtype, float],
    dtype: torch.dtype,
) -> list[float]:
    """Return what eps may be for a dtype."""
    value = None if attribute is None else getattr(module, attribute)
    if value is not None:
        return [value]
    eps = measured.get(dtype, measured[torch.float32])
    known = [torch.finfo(torch.float32).eps, torch.finfo(dtype).eps]
    found = [each for each in known if abs(each - eps) <= 1e-3 * each or dtype.itemsize == 2]
    return [*found, float(f"{eps:.3g}")]


def _rows(n: int, dtype: torch.dtype) -> Tensor:
    scales = _FLOAT16_SCALES if dtype is torch.float16 else _SCALES
    # Enough of them for the largest error to be seen.
    rows = torch.tensor(scales * max(1, 1000 // n), dtype=torch.float64)[:, None]
    rows = rows * normal(len(rows), n)
    special = torch.stack((5 + normal(n, seed=2), torch.zeros(n, dtype=torch.float64)))
    return torch.cat((rows, special)).to(dtype)[None]


def _vectors(n: int, dtype: torch.dtype, offset: bool, has_bias: bool) -> list[Tensor]:
    weight = (uniform(n) - int(offset)).to(dtype)
    return [weight, uniform(n, seed=3).to(dtype)] if has_bias else [weight]


def _operands(
    x: Tensor, vectors: list[Tensor], device: torch.device
) -> tuple[Tensor, Tensor, Tensor | None]:
    bias = vectors[1].to(device) if len(vectors) == 2 else None
    return x.to(device), vectors[0].to(device), bias


def _exact(op: str, x: Tensor, weight: Any, bias: Tensor | None, eps: float) -> Tensor:
    if op == "layer_norm":
        x = x - x.mean(-1, keepdim=True)
    y = x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight
    return torch.nan_to_num(y) if bias is None else torch.nan_to_num(y) + bias


def _confirm(
    module: nn.Module,
    op: str,
    offset: bool,
    eps: float,
    dtype: torch.dtype,
    device: torch.device,
    n: int,
    has_bias: bool,
) -> str | None:
    """Say how the result differs from the op's in a dtype, None if it does not."""
    x, vectors = _rows(n, dtype), _vectors(n, dtype, offset, has_bias)
    if not eps:
        x = x[:, :-1]  # nothing is to be said of 0 / 0
    weight, *rest = (each.double() for each in vectors)
    exact = _exact(op, x.double(), weight + int(offset), rest[0] if rest else None, eps)
    bound = OPS[op].bounds[DTYPE_NAMES[dtype]]
    for training in (False, True):
        try:
            y = _run(module, *_operands(x, vectors, device), training)
        except RefusedError as error:
            return f"is unknown ({error})"
        if y.dtype != dtype:
            return f"has dtype {y.dtype}"
        if (found := difference(y, exact, bound, 0.0)) is not None:
            return found
    return None


def _confirm_gradients(
    module: nn.Module,
    op: str,
    offset: bool,
    eps: float,
    device: torch.device,
    n: int,
    has_bias: bool,
) -> None:
    x = (0.5 + normal(4, n, seed=4)).float()
    inputs = [each.to(device) for each in (x, *_vectors(n, torch.float32, offset, has_bias))]

    def own(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return _run(module, x, weight, bias, training=True)

    def exact(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return _exact(op, x, weight + int(offset), bias, eps)

    if (found := gradient_difference(own, exact, tuple(inputs))) is not None:
        raise RefusedError(f"compared with {op}, its result {found}")


def _confirm_op(
    module: nn.Module,
    recipe: NormRecipe,
    dtype: torch.dtype,
    device: torch.device,
    n: int,
    has_bias: bool,
) -> None:
    """Run what the module would be swapped for."""
    x, vectors = _rows(n, dtype), _vectors(n, dtype, recipe.offset, has_bias)
    eps = dict(recipe.eps)[dtype]
    if not eps:
        x = x[:, :-1]
    weight, *rest = (each.double() for each in vectors)
    exact = _exact(
        recipe.op, x.double(), weight + int(recipe.offset), rest[0] if rest else None, eps
    )
    x, *operands = _operands(x, vectors, device)
    swapped = shadow(module, _named(module, *operands))
    swapped.__class__ = swapped_class(type(module), replace(recipe, single=False))
    y = run(swapped, x)
    found = difference(y, exact, OPS[recipe.op].bounds[DTYPE_NAMES[dtype]], 0.0)
    if found is not None:
        raise RefusedError(f"the op's own result {found} in {DTYPE_NAMES[dtype]}")

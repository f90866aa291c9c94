"""Modules that are RMSNorm or LayerNorm."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tensor_ops.extension import OPS
from tensor_ops_torch.modules.algebra import Formula, Function, Sum, Symbol, number, symbol
from tensor_ops_torch.modules.classes import swapped_class
from tensor_ops_torch.modules.conditions import Conditions
from tensor_ops_torch.modules.functions import layer_norm_of, rms_norm_of
from tensor_ops_torch.modules.reading import Reading
from tensor_ops_torch.modules.recipes import NormRecipe
from tensor_ops_torch.modules.refusal import RefusedError
from tensor_ops_torch.modules.samples import (
    SAMPLED,
    compared,
    difference,
    gradient_difference,
    normal,
    run,
    shadow,
    uniform,
    unsupported,
)
from tensor_ops_torch.modules.values import X
from tensor_ops_torch.operators.tensors import DTYPE_NAMES

__all__ = ["Norm", "check_norm", "guess_norms", "match_norm"]

_OPS = {"rms_norm": rms_norm_of, "layer_norm": layer_norm_of}
_SCALES = (1.0, 1e4, 30.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8)
# What a half type with few exponents has room for.
_FLOAT16_SCALES = (1.0, 1e2, 30.0, 0.1, 1e-2, 1e-3, 1e-4)
# Lengths of rows to try where neither a parameter nor a number says one.
_WIDTH = 64
_USUAL_EPS = (1e-5, 1e-6, 1e-8, 1e-12, torch.finfo(torch.float32).eps)


@dataclass(frozen=True)
class Norm:
    """A norm in one dtype.

    Attributes
    ----------
    op : {"rms_norm", "layer_norm"}
    weight, bias : str or None
        The names of its parameters.
    offset : bool
        Whether one is added to the weight.
    eps : float or str
        A number, or the attribute that holds it.
    """

    op: str
    weight: str | None
    offset: bool
    bias: str | None
    eps: float | str


def match_norm(reading: Reading, parameters: Collection[str]) -> Norm | None:
    """Return the norm that a forward computes, None if it computes something else."""
    if "mean(" not in str(reading.formula):
        return None
    symbols = set(_symbols(reading.formula))
    used = sorted(each.removeprefix("self.") for each in symbols if each.startswith("self."))
    names = [each for each in used if each in parameters]
    numbers = sorted({each for each in _constants(reading.formula) if each > 0})
    candidates: list[float | str] = [*(each for each in used if each not in parameters), *numbers]
    for op, eps in itertools.product(_OPS, candidates):
        normed = _OPS[op](X, symbol(f"self.{eps}") if isinstance(eps, str) else number(eps))
        for weight, offset in ((None, False), *itertools.product(names, (False, True))):
            scaled = normed
            if weight is not None:
                factor = symbol(f"self.{weight}")
                scaled = normed * (factor + 1 if offset else factor)
            biases = [each for each in names if each != weight] if op == "layer_norm" else []
            for bias in (None, *biases):
                whole = scaled if bias is None else scaled + symbol(f"self.{bias}")
                if whole == reading.formula:
                    return Norm(op, weight, offset, bias, eps)
    return None


def guess_norms(module: nn.Module) -> Iterator[dict[torch.dtype, Norm]]:
    """Yield what a module may compute whose forward is not known."""
    vectors = [name for name, each in module._parameters.items() if each is not None]
    weight = next((name for name in vectors if name in ("weight", "scale", "gamma", "g")), None)
    bias = next((name for name in vectors if name in ("bias", "beta", "b")), None)
    if {weight, bias} - {None} != set(vectors):
        return
    attributes = [
        name
        for name, value in vars(module).items()
        if type(value) in (int, float) and 0 <= value < 1 and name != "training"
    ]
    for op, offset, eps in itertools.product(_OPS, (False, True), (*attributes, *_USUAL_EPS)):
        if (op == "rms_norm" and bias is not None) or (offset and weight is None):
            continue
        yield dict.fromkeys(SAMPLED, Norm(op, weight, offset, bias, eps))


def check_norm(
    module: nn.Module,
    norms: dict[torch.dtype, Norm],
    conditions: Conditions,
    width: int | None,
    *,
    gradients: bool = False,
) -> NormRecipe:
    """Return the recipe of a norm, for the dtypes in which it rounds as little as an op.

    Raises
    ------
    RefusedError
        If its results are not the formula's in float32 and in the dtype of its parameters.
    """
    norm = norms[torch.float32]
    dtype = _check_parameters(module, norm)
    n = width or _WIDTH
    if norm.weight is not None:
        n = module._parameters[norm.weight].shape[0]
    eps: list[tuple[torch.dtype, float | str]] = []
    reasons: dict[torch.dtype, str | None] = {}
    for each in SAMPLED:
        if each not in norms:
            reasons[each] = "is not known"
            continue
        reasons[each] = _difference(module, norms[each], each, n)
        if reasons[each] is None:
            eps.append((each, norms[each].eps))
    for each in dict.fromkeys((torch.float32, dtype)):
        if reasons[each] is not None:
            raise RefusedError(
                f"compared with {norm.op} in {DTYPE_NAMES[each]}, its result {reasons[each]}"
            )
    if gradients:
        _check_gradients(module, norm, n)
    recipe = NormRecipe(norm.op, norm.weight, norm.offset, norm.bias, tuple(eps), width, conditions)
    swapped = shadow(module, _parameters(module, norm, n, dtype))
    swapped.__class__ = swapped_class(type(module), recipe)
    x = _rows(n, dtype, norms[dtype], module)
    found = difference(
        run(swapped, x),
        _exact(module, norms[dtype], x, n),
        OPS[norm.op].bounds[DTYPE_NAMES[dtype]],
        0.0,
    )
    if found is not None:
        raise RefusedError(f"the op's own result {found} in {DTYPE_NAMES[dtype]}")
    return recipe


def _check_parameters(module: nn.Module, norm: Norm) -> torch.dtype:
    """Return the dtype of the parameters."""
    own = {name: each for name, each in module._parameters.items() if each is not None}
    for name in (norm.weight, norm.bias):
        if name is not None and (reason := unsupported(own[name])) is not None:
            raise RefusedError(f"its {name} {reason}")
    kinds = {(own[name].dtype, own[name].shape) for name in (norm.weight, norm.bias) if name}
    if len(kinds) > 1:
        raise RefusedError(f"its weight and bias differ in dtype or shape: {kinds}")
    if any(not shape.numel() for _, shape in kinds):
        raise RefusedError("its weight is empty")
    return next((dtype for dtype, _ in kinds), torch.float32)


def _symbols(formula: Formula) -> Iterator[str]:
    for factor, _ in formula.factors:
        if isinstance(factor, Symbol):
            yield factor.name
        elif isinstance(factor, Function):
            yield from _symbols(factor.argument)
        else:
            for term in factor.terms:
                yield from _symbols(term)


def _constants(formula: Formula) -> Iterator[float]:
    """Yield the numbers that a formula adds."""
    for factor, _ in formula.factors:
        if isinstance(factor, Sum):
            for term in factor.terms:
                if term.value is not None:
                    yield term.value
                yield from _constants(term)


def _eps_of(module: nn.Module, norm: Norm) -> float:
    return float(getattr(module, norm.eps) if isinstance(norm.eps, str) else norm.eps)


def _rows(n: int, dtype: torch.dtype, norm: Norm, module: nn.Module) -> Tensor:
    scales = _FLOAT16_SCALES if dtype is torch.float16 else _SCALES
    # Enough of them for the largest error to be seen.
    rows = torch.tensor(scales * max(1, 1000 // n), dtype=torch.float64)[:, None]
    rows = rows * normal(len(rows), n)
    special = [5 + normal(1, n, seed=2)]
    if _eps_of(module, norm):  # or there is nothing to be said of 0 / 0
        special.append(torch.zeros(1, n, dtype=torch.float64))
    return torch.cat((rows, *special)).to(dtype)[None]


def _vectors(n: int, norm: Norm, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return (uniform(n) - int(norm.offset)).to(dtype), uniform(n, seed=3).to(dtype)


def _parameters(
    module: nn.Module, norm: Norm, n: int, dtype: torch.dtype
) -> dict[str, Tensor | None]:
    own: dict[str, Tensor | None] = dict.fromkeys(module._parameters)
    vectors = zip((norm.weight, norm.bias), _vectors(n, norm, dtype), strict=True)
    return own | {name: value for name, value in vectors if name is not None}


def _exact(module: nn.Module, norm: Norm, x: Tensor, n: int) -> Tensor:
    """Return the formula's value in float64."""
    weight, bias = (each.double() for each in _vectors(n, norm, x.dtype))
    wide, eps = x.double(), _eps_of(module, norm)
    return _formula(
        norm,
        wide,
        weight + int(norm.offset) if norm.weight else None,
        bias if norm.bias else None,
        eps,
    )


def _formula(
    norm: Norm, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    if norm.op == "layer_norm":
        x = x - x.mean(-1, keepdim=True)
    y = torch.nan_to_num(x / (x.square().mean(-1, keepdim=True) + eps).sqrt())
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _difference(module: nn.Module, norm: Norm, dtype: torch.dtype, n: int) -> str | None:
    """Say how the result differs from the formula's in a dtype, None if it does not."""
    x = _rows(n, dtype, norm, module)
    trial = shadow(module, _parameters(module, norm, n, dtype))
    return compared(trial, x, _exact(module, norm, x, n), norm.op, 0.0)


def _check_gradients(module: nn.Module, norm: Norm, n: int) -> None:
    x = (0.5 + normal(4, n, seed=4)).float()
    names = [name for name in (norm.weight, norm.bias) if name is not None]
    vectors = dict(zip((norm.weight, norm.bias), _vectors(n, norm, torch.float32), strict=True))
    eps = _eps_of(module, norm)

    def own(x: Tensor, *given: Tensor) -> Tensor:
        tensors = dict.fromkeys(module._parameters) | dict(zip(names, given, strict=True))
        return run(shadow(module, tensors, training=True), x)

    def exact(x: Tensor, *given: Tensor) -> Tensor:
        tensors = dict(zip(names, given, strict=True))
        weight = None if norm.weight is None else tensors[norm.weight] + int(norm.offset)
        return _formula(norm, x, weight, None if norm.bias is None else tensors[norm.bias], eps)

    found = gradient_difference(own, exact, (x, *(vectors[name] for name in names)))
    if found is not None:
        raise RefusedError(f"compared with {norm.op}, its result {found}")

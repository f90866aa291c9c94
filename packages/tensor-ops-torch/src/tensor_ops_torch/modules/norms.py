"""Modules that are RMSNorm or LayerNorm."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tensor_ops_torch.modules import samples
from tensor_ops_torch.modules.conditions import Conditions
from tensor_ops_torch.modules.recipes import NormRecipe
from tensor_ops_torch.modules.source import RefusedError

__all__ = ["Norm", "check_norm", "guess_norms"]

_OPS = ("rms_norm", "layer_norm")
_SCALES = (1.0, 1e4, 30.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8)
# A half type with few exponents has room for these.
_FLOAT16_SCALES = (1.0, 1e2, 30.0, 0.1, 1e-2, 1e-3, 1e-4)
# Lengths of rows to try where neither a parameter nor a number says one.
_WIDTH = 64
_USUAL_EPS = (1e-5, 1e-6, 1e-8, 1e-12, torch.finfo(torch.float32).eps)


@dataclass(frozen=True)
class Norm:
    """A norm in one dtype."""

    op: str
    weight: str | None  # the names of its parameters
    bias: str | None
    offset: bool  # one is added to the weight
    eps: float | str  # a number, or the attribute that holds it

    def exact(self, module: nn.Module, x: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
        """Return the value of the formula, in the dtype of x and the parameters `vectors`."""
        if self.op == "layer_norm":
            x = x - x.mean(-1, keepdim=True)
        mean = x.square().mean(-1, keepdim=True) + _eps_of(module, self)
        y = torch.nan_to_num(x / mean.sqrt())
        if self.weight is not None:
            y = y * (vectors[self.weight] + int(self.offset))
        return y if self.bias is None else y + vectors[self.bias]


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
    for op, offset, eps in itertools.product(_OPS, (False, True), [*attributes, *_USUAL_EPS]):
        if (op == "layer_norm" or bias is None) and (weight is not None or not offset):
            yield dict.fromkeys(samples.SAMPLED, Norm(op, weight, bias, offset, eps))


def check_norm(
    module: nn.Module,
    norms: dict[torch.dtype, Norm],
    conditions: Conditions,
    width: int | None,
    *,
    gradients: bool = False,
) -> NormRecipe:
    """Return the recipe of a norm, for the dtypes in which it rounds as little as an op.

    Raises RefusedError if its results are not the formula's in float32 and in the dtype of its
    parameters.
    """
    norm = norms[torch.float32]
    own = _check_parameters(module, norm)
    n = width or _WIDTH
    if norm.weight is not None:
        n = module._parameters[norm.weight].shape[0]
    recipe = samples.confirmed(
        module,
        norm.op,
        norm.op,
        {each: _trial(module, norms[each], n, each) for each in samples.SAMPLED if each in norms},
        (torch.float32, own),
        lambda known: NormRecipe(
            norm.op,
            conditions,
            norm.weight,
            norm.bias,
            norm.offset,
            tuple((dtype, norms[dtype].eps) for dtype in known),
            width,
        ),
        0.0,
    )
    if gradients:
        _check_gradients(module, norm, n)
    return recipe


def _check_parameters(module: nn.Module, norm: Norm) -> torch.dtype:
    """Return the dtype of the parameters."""
    own = {name: each for name, each in module._parameters.items() if each is not None}
    for name in (norm.weight, norm.bias):
        if name is not None and (reason := samples.unsupported(own[name])) is not None:
            raise RefusedError(f"its {name} {reason}")
    kinds = {(own[name].dtype, own[name].shape) for name in (norm.weight, norm.bias) if name}
    if len(kinds) > 1:
        raise RefusedError(f"its weight and bias differ in dtype or shape: {kinds}")
    if any(not shape.numel() for _, shape in kinds):
        raise RefusedError("its weight is empty")
    return next((dtype for dtype, _ in kinds), torch.float32)


def _eps_of(module: nn.Module, norm: Norm) -> float:
    return float(getattr(module, norm.eps) if isinstance(norm.eps, str) else norm.eps)


def _rows(n: int, dtype: torch.dtype, norm: Norm, module: nn.Module) -> Tensor:
    scales = _FLOAT16_SCALES if dtype is torch.float16 else _SCALES
    # Enough of them for the largest error to be seen.
    rows = torch.tensor(scales * max(1, 1000 // n), dtype=torch.float64)[:, None]
    rows = rows * samples.normal(len(rows), n)
    special = [5 + samples.normal(1, n, seed=2)]
    if _eps_of(module, norm):  # or there is nothing to be said of 0 / 0
        special.append(torch.zeros(1, n, dtype=torch.float64))
    return torch.cat((rows, *special)).to(dtype)[None]


def _vectors(n: int, norm: Norm, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return numbers for the parameters of a norm."""
    found = {}
    if norm.weight is not None:
        found[norm.weight] = (samples.uniform(n) - int(norm.offset)).to(dtype)
    if norm.bias is not None:
        found[norm.bias] = samples.uniform(n, seed=3).to(dtype)
    return found


def _trial(module: nn.Module, norm: Norm, n: int, dtype: torch.dtype) -> samples.Trial:
    x, vectors = _rows(n, dtype, norm, module), _vectors(n, norm, dtype)
    wide = {name: each.double() for name, each in vectors.items()}
    exact = norm.exact(module, x.double(), wide)
    return samples.Trial(x, exact, dict.fromkeys(module._parameters) | vectors)


def _check_gradients(module: nn.Module, norm: Norm, n: int) -> None:
    x = (0.5 + samples.normal(4, n, seed=4)).float()
    vectors = _vectors(n, norm, torch.float32)

    def own(x: Tensor, *given: Tensor) -> Tensor:
        tensors = dict.fromkeys(module._parameters) | dict(zip(vectors, given, strict=True))
        return samples.run(samples.shadow(module, tensors, training=True), x)

    def exact(x: Tensor, *given: Tensor) -> Tensor:
        return norm.exact(module, x, dict(zip(vectors, given, strict=True)))

    samples.check_gradients(norm.op, own, exact, (x, *vectors.values()))

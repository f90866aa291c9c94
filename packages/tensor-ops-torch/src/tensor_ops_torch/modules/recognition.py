"""The op that a module is, known by the source of its forward."""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor, nn

from tensor_ops import BackendError
from tensor_ops.extension import OPS, function_of
from tensor_ops_torch.modules.activations import (
    ACTIVATIONS,
    FUNCTIONS,
    MISSING_OPS,
    Activation,
    check_activation,
    exact,
)
from tensor_ops_torch.modules.classes import Recipe, has_other_forward, swapped_class
from tensor_ops_torch.modules.conditions import Conditions
from tensor_ops_torch.modules.gated import check_gated, looks_gated, match_gated
from tensor_ops_torch.modules.norms import check_norm, guess_norms, match_norm
from tensor_ops_torch.modules.reading import Reading, read
from tensor_ops_torch.modules.recipes import ActivationRecipe
from tensor_ops_torch.modules.refusal import RefusedError
from tensor_ops_torch.modules.samples import SAMPLED, normal, run, shadow
from tensor_ops_torch.modules.source import definition_of
from tensor_ops_torch.operators.tensors import device_route

__all__ = ["Outcome", "recognise"]

_TORCH = (nn.RMSNorm, nn.LayerNorm, nn.SiLU, nn.GELU)
_NAMED = re.compile("(RMS|Layer)_?Norm|SiLU|Swish|GELU|SwiGLU|GeGLU", re.IGNORECASE)
# An unknown forward that calls one of these may be meant to be an op.
_NORMING = {"rsqrt", "layer_norm", "rms_norm", "std", "var"}
_ACTIVATING = {"silu", "gelu", "erf"}
_POINTWISE = ("silu", "gelu none", "gelu tanh")
_NEAR = 0.05


@dataclass(frozen=True)
class Outcome:
    """The recipe of a module, or why it has none."""

    recipe: Recipe | None = None
    reason: str | None = None
    missing: str | None = None  # what it computes and no op does


def recognise(
    module: nn.Module,
    device: torch.device,
    activations: Mapping[int, ActivationRecipe | str],
    trusted: Collection[type] = (),
) -> Outcome | None:
    """Return what is known of a module on a device, None if it does not look like an op.

    `activations` are the recipes of its children that are activations, or why they have none, by
    their id. Classes that are `trusted` are taken for what they compute on samples.
    """
    try:
        found = _find(module, activations, trusted)
        if found is None:
            return None
        _check_class(module)
        _check_backend(found, device)
        # A class that cannot be derived from shows here.
        trial = shadow(module)
        trial.__class__ = swapped_class(type(module), found)
    except RefusedError as error:
        return Outcome(reason=str(error), missing=error.missing)
    except Exception as error:
        return Outcome(reason=f"recognising it raised {type(error).__name__}: {error}")
    return Outcome(found)


def _find(
    module: nn.Module,
    activations: Mapping[int, ActivationRecipe | str],
    trusted: Collection[type],
) -> Recipe | None:
    if isinstance(module, torch.jit.ScriptModule):
        if _NAMED.search(str(getattr(module, "original_name", ""))):
            raise RefusedError("it was compiled by torch.jit; swap before")
        return None
    if type(module) in trusted:
        return _guess(module)
    try:
        if "parametrizations" in module._modules:
            names = ", ".join(module._modules["parametrizations"]._modules)
            raise RefusedError(f"its {names} is parametrized; swap before it is")
        for numbers in (False, True):
            reading = read(module, torch.float32, numbers=numbers)
            recipe = _recipe(module, reading, numbers, activations)
            if recipe is not None:
                return recipe
    except RefusedError:
        if _is_grouped(module, activations):
            reason = "its experts share tensors of three axes, which no op of tensor_ops takes"
            raise RefusedError(reason, missing="grouped MLP") from None
        if not _looks_like(module, activations):
            return None
        _check_class(module)  # what was done to the module is said before what its forward does
        raise
    if (name := MISSING_OPS.get(reading.formula)) is not None:
        raise RefusedError(f"it computes {name}, which no op of tensor_ops does", missing=name)
    if looks_gated(module, activations) or _is_near(module):
        raise RefusedError(f"it computes {reading.formula}, which no op of tensor_ops does")
    return None


def _is_grouped(module: nn.Module, activations: Mapping[int, ActivationRecipe | str]) -> bool:
    """Return whether a module holds the weights of all experts of a mixture."""
    stacked = [each for each in module._parameters.values() if each is not None and each.ndim == 3]
    active = any(id(child) in activations for child in module._modules.values())
    return len(stacked) >= 2 and active


def _recipe(
    module: nn.Module,
    reading: Reading,
    numbers: bool,
    activations: Mapping[int, ActivationRecipe | str],
) -> Recipe | None:
    """Return the recipe of a module that was read in float32, None if it computes no op."""
    if reading.calls:
        gated = match_gated(reading)
        if gated is None:
            return None
        return check_gated(module, gated, Conditions.of(reading), activations, _of_functions())
    parameters = module._parameters
    activation = ACTIVATIONS.get(reading.formula)
    if activation is None and match_norm(reading, parameters) is None:
        return None
    readings = {torch.float32: reading}
    for dtype in SAMPLED:
        if dtype is not torch.float32:
            with contextlib.suppress(RefusedError):
                readings[dtype] = read(module, dtype, numbers=numbers)
    if activation is not None:
        same = {
            of: each for of, each in readings.items() if ACTIVATIONS.get(each.formula) == activation
        }
        return check_activation(module, activation, same, Conditions.of(*same.values()))
    norms = {dtype: match_norm(each, parameters) for dtype, each in readings.items()}
    known = {dtype: norm for dtype, norm in norms.items() if norm is not None}
    conditions = Conditions.of(*(readings[dtype] for dtype in known))
    width = max((each.width for each in readings.values()), key=lambda each: each or 0)
    return check_norm(module, known, conditions, width)


@lru_cache(maxsize=1)
def _of_functions() -> dict[Activation, ActivationRecipe]:
    """Return the recipes of PyTorch's own activations."""
    found = {}
    for name, module in zip(_POINTWISE, (nn.SiLU(), nn.GELU(), nn.GELU("tanh")), strict=True):
        recipe = _recipe(module, read(module, torch.float32), False, {})
        assert isinstance(recipe, ActivationRecipe)
        found[FUNCTIONS[name]] = recipe
    return found


def _guess(module: nn.Module) -> Recipe:
    """Return the recipe of a module whose class is trusted, by its results on samples.

    Raises RefusedError if they are those of no op.
    """
    closest = None
    for guess in _guesses(module):
        try:
            return guess()
        except RefusedError as error:
            closest = closest or error
    raise RefusedError(
        "its class is trusted, but its results on samples are those of no op"
        + ("" if closest is None else f": {closest}")
    )


def _guesses(module: nn.Module) -> Iterator[Callable[[], Recipe]]:
    """Yield checks of what a module may compute whose forward is not known."""
    conditions = Conditions()
    if any(each is not None for each in module._parameters.values()):
        for norms in guess_norms(module):
            yield partial(check_norm, module, norms, conditions, None, gradients=True)
    if not module._parameters and not module._modules:
        for activation in FUNCTIONS.values():
            yield partial(check_activation, module, activation, SAMPLED, conditions, gradients=True)


def _check_class(module: nn.Module) -> None:
    kind = type(module)
    if has_other_forward(module):
        raise RefusedError("its forward was replaced on the instance; swap before")
    if any({"__reduce__", "__reduce_ex__"} & vars(each).keys() for each in kind.__mro__[:-1]):
        raise RefusedError(f"its class {kind.__name__} says how it is pickled")
    if vars(module).get("qconfig") is not None:
        raise RefusedError("it is to be quantised (qconfig)")


def _check_backend(recipe: Recipe, device: torch.device) -> None:
    """Refuse a device that no backend computes on: PyTorch's own functions are there already."""
    if device.type in ("cpu", "meta"):
        return
    try:
        function_of(device_route(OPS[recipe.op], device), torch.float32, "float32")
    except BackendError as error:
        raise RefusedError(f"no backend runs on {device}: {error}") from error


def _looks_like(module: nn.Module, activations: Mapping[int, ActivationRecipe | str]) -> bool:
    """Return whether a module whose forward is not known may be meant to be an op."""
    kind = type(module)
    if isinstance(module, _TORCH):
        return True
    if kind.__module__.startswith("torch.nn.modules."):
        return False
    if looks_gated(module, activations):
        return True
    if any(each is not None for each in module._modules.values()):
        return False
    if isinstance(module, nn.modules.batchnorm._NormBase | nn.GroupNorm):
        return False
    if _NAMED.search(kind.__name__):
        return True
    tensors = [each for each in module._parameters.values() if each is not None]
    names = _names(kind)
    if tensors:
        few = all(each.ndim <= 1 for each in tensors) and any(each.ndim for each in tensors)
        return few and not names.isdisjoint(_NORMING)
    return not names.isdisjoint(_ACTIVATING)


def _names(kind: type) -> frozenset[str]:
    """Return the names in the functions of a class, as far as they can be read."""
    found: set[str] = set()
    of_kinds = itertools.takewhile(lambda each: each is not nn.Module, kind.__mro__)
    for value in itertools.chain.from_iterable(vars(each).values() for each in of_kinds):
        try:
            tree: ast.AST = definition_of(getattr(value, "__wrapped__", value))
        except RefusedError:
            continue
        found |= {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}
        found |= {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    return frozenset(found)


def _is_near(module: nn.Module) -> bool:
    """Return whether a module that was read computes nearly what an op does."""
    vectors = [each for each in module._parameters.values() if each is not None]
    n = vectors[0].shape[0] if vectors and vectors[0].ndim == 1 else 97
    x = 3 * normal(4, n).float()
    given: dict[str, Tensor | None] = {
        # Ones for a weight, zeros for a bias.
        name: None if each is None else torch.full(each.shape, float(name[0] != "b"))
        for name, each in module._parameters.items()
    }
    try:
        y = run(shadow(module, given), x).double()
    except RefusedError:
        return False
    wide = x.double()
    centred = wide - wide.mean(-1, keepdim=True)
    like = [wide / wide.square().mean(-1, keepdim=True).sqrt()]
    like += [centred / centred.square().mean(-1, keepdim=True).sqrt()]
    like = like if vectors else [exact(FUNCTIONS[each], wide) for each in _POINTWISE] + like
    return y.shape == x.shape and any(
        float((y - each).abs().max()) <= _NEAR * max(1.0, float(each.abs().max())) for each in like
    )

"""Which op a module is, known by what its forward says."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from tensor_ops import BackendError
from tensor_ops.extension import OPS, function_of
from tensor_ops_torch.modules.activations import (
    FUNCTIONS,
    check_activation,
    exact,
    match_activation,
    missing_op,
)
from tensor_ops_torch.modules.classes import has_other_forward, swapped_class
from tensor_ops_torch.modules.conditions import Conditions
from tensor_ops_torch.modules.gated import check_gated, looks_gated, match_gated
from tensor_ops_torch.modules.norms import check_norm, guess_norms, match_norm
from tensor_ops_torch.modules.reading import Reading, read
from tensor_ops_torch.modules.recipes import ActivationRecipe, Recipe
from tensor_ops_torch.modules.refusal import RefusedError
from tensor_ops_torch.modules.samples import SAMPLED, normal, run, shadow
from tensor_ops_torch.modules.source import definition_of
from tensor_ops_torch.operators.tensors import device_route

__all__ = ["Outcome", "recognise"]

_TORCH = (nn.RMSNorm, nn.LayerNorm, nn.SiLU, nn.GELU)
_NAMED = re.compile("(RMS|Layer)_?Norm|SiLU|Swish|GELU|SwiGLU|GeGLU", re.IGNORECASE)
# What a forward that is not known calls if it may be meant to be an op.
_NORMING = {"rsqrt", "layer_norm", "rms_norm", "std", "var"}
_ACTIVATING = {"silu", "gelu", "erf"}
_NEAR = 0.05


@dataclass(frozen=True)
class Outcome:
    """What is known of a module: its recipe, or why it has none.

    Attributes
    ----------
    recipe : Recipe or None
    reason : str or None
    missing : str or None
        What it computes and no op does.
    """

    recipe: Recipe | None = None
    reason: str | None = None
    missing: str | None = None


def recognise(
    module: nn.Module,
    device: torch.device,
    activations: Mapping[int, ActivationRecipe | str],
    trusted: Collection[type] = (),
) -> Outcome | None:
    """Return what is known of a module, None if it does not look like an op.

    Parameters
    ----------
    module : torch.nn.Module
    device : torch.device
        Where it computes.
    activations : mapping of int to ActivationRecipe or str
        The recipes of its children that are activations, or why they have none, by their id.
    trusted : collection of type
        Classes that are taken for what they compute on samples.
    """
    if isinstance(module, torch.jit.ScriptModule):
        name = str(getattr(module, "original_name", ""))
        is_op = _NAMED.search(name) is not None
        return Outcome(reason="it was compiled by torch.jit; swap before") if is_op else None
    try:
        found = _find(module, activations, trusted)
        if isinstance(found, Outcome) or found is None:
            return found
        _check_class(module)
        _check_backend(found, device)
        # A class that cannot be derived from shows here.
        trial = shadow(module)
        trial.__class__ = swapped_class(type(module), found)
    except RefusedError as error:
        return Outcome(reason=str(error))
    except Exception as error:
        return Outcome(reason=f"recognising it raised {type(error).__name__}: {error}")
    return Outcome(found)


def _find(
    module: nn.Module,
    activations: Mapping[int, ActivationRecipe | str],
    trusted: Collection[type],
) -> Recipe | Outcome | None:
    if type(module) in trusted:
        return _guess(module)
    try:
        readings = _Readings(module)
        for numbers in (False, True):
            recipe = readings.recipe(numbers, activations)
            if recipe is not None:
                return recipe
    except RefusedError:
        if _is_grouped(module, activations):
            return Outcome(
                reason="its experts share tensors of three axes, which no op of tensor_ops takes",
                missing="grouped MLP",
            )
        if not _looks_like(module, activations):
            return None
        _check_class(module)  # what was done to the module is said before what its forward does
        raise
    reading = readings.of(torch.float32, numbers=True)
    if (name := missing_op(reading)) is not None:
        return Outcome(reason=f"it computes {name}, which no op of tensor_ops does", missing=name)
    if looks_gated(module, activations) or _is_near(module):
        return Outcome(reason=f"it computes {reading.formula}, which no op of tensor_ops does")
    return None


def _is_grouped(module: nn.Module, activations: Mapping[int, ActivationRecipe | str]) -> bool:
    """Return whether a module holds the weights of all experts of a mixture."""
    stacked = [each for each in module._parameters.values() if each is not None and each.ndim == 3]
    active = any(id(child) in activations for child in module._modules.values())
    return len(stacked) >= 2 and active


class _Readings:
    """The forward of a module as it was read for one dtype and another."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        if "parametrizations" in module._modules:
            names = ", ".join(module._modules["parametrizations"]._modules)
            raise RefusedError(f"its {names} is parametrized; swap before it is")
        self._found: dict[tuple[torch.dtype, bool], Reading] = {}

    def of(self, dtype: torch.dtype, *, numbers: bool) -> Reading:
        key = dtype, numbers
        if key not in self._found:
            self._found[key] = read(self.module, dtype, numbers=numbers)
        return self._found[key]

    def all(self, numbers: bool) -> Iterator[tuple[torch.dtype, Reading]]:
        """Yield every dtype in which the forward can be read."""
        for dtype in SAMPLED:
            try:
                yield dtype, self.of(dtype, numbers=numbers)
            except RefusedError:
                if dtype is torch.float32:
                    raise

    def recipe(
        self, numbers: bool, activations: Mapping[int, ActivationRecipe | str]
    ) -> Recipe | None:
        module, reading = self.module, self.of(torch.float32, numbers=numbers)
        if reading.calls:
            gated = match_gated(reading)
            if gated is None:
                return None
            return check_gated(module, gated, Conditions.of(reading), activations, _of_functions())
        readings = dict(self.all(numbers))
        activation = match_activation(reading)
        if activation is not None:
            same = {
                dtype: each
                for dtype, each in readings.items()
                if match_activation(each) == activation
            }
            return check_activation(module, activation, tuple(same), _conditions(same))
        parameters = module._parameters
        if match_norm(reading, parameters) is None:
            return None
        norms = {dtype: match_norm(each, parameters) for dtype, each in readings.items()}
        known = {dtype: norm for dtype, norm in norms.items() if norm is not None}
        conditions = _conditions({dtype: readings[dtype] for dtype in known})
        widths = {each.width for each in readings.values()}
        return check_norm(module, known, conditions, max(widths, key=lambda each: each or 0))


def _conditions(readings: Mapping[torch.dtype, Reading]) -> Conditions:
    """Return the conditions of all of them."""
    whole = Reading(torch.float32)
    for each in readings.values():
        whole.watched |= each.watched
        whole.functions |= each.functions
        whole.passed |= each.passed
        whole.held |= each.held
    return Conditions.of(whole)


@lru_cache(maxsize=1)
def _of_functions() -> dict[tuple[str, str | None], ActivationRecipe]:
    """Return the recipes of PyTorch's own activations."""
    modules = (nn.SiLU(), nn.GELU(), nn.GELU("tanh"))
    found = {}
    for module, function in zip(modules, FUNCTIONS, strict=False):
        recipe = _Readings(module).recipe(False, {})
        assert isinstance(recipe, ActivationRecipe)
        found[function] = recipe
    return found


def _guess(module: nn.Module) -> Recipe:
    """Return the recipe of a module whose class is trusted, by its results on samples.

    Raises
    ------
    RefusedError
        If they are those of no op.
    """
    conditions = Conditions()
    closest = None
    guesses = (
        guess_norms(module) if any(each is not None for each in module._parameters.values()) else ()
    )
    for norms in guesses:
        try:
            return check_norm(module, norms, conditions, None, gradients=True)
        except RefusedError as error:
            closest = closest or error
    if not module._parameters and not module._modules:
        for function in FUNCTIONS:
            try:
                return check_activation(module, function, SAMPLED, conditions, gradients=True)
            except RefusedError as error:
                closest = closest or error
    raise RefusedError(
        "its class is trusted, but its results on samples are those of no op"
        + ("" if closest is None else f": {closest}")
    )


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
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Name):
                found.add(node.id)
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
    like = like if vectors else [exact(function, wide) for function in FUNCTIONS[:3]] + like
    return y.shape == x.shape and any(
        float((y - each).abs().max()) <= _NEAR * max(1.0, float(each.abs().max())) for each in like
    )

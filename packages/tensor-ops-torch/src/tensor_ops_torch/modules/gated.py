"""Modules that are gated MLPs, SwiGLU and GeGLU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import nn

from tensor_ops_torch.modules.activations import FUNCTIONS, Activation
from tensor_ops_torch.modules.algebra import Formula, function
from tensor_ops_torch.modules.classes import base_of
from tensor_ops_torch.modules.conditions import Conditions
from tensor_ops_torch.modules.functions import HALVES, call_of
from tensor_ops_torch.modules.reading import Reading
from tensor_ops_torch.modules.recipes import ActivationRecipe, GatedRecipe
from tensor_ops_torch.modules.refusal import RefusedError
from tensor_ops_torch.modules.values import X

__all__ = ["check_gated", "looks_gated", "match_gated"]

_FUNCTIONS = {activation: name for name, activation in FUNCTIONS.items() if name != "softmax"}


@dataclass(frozen=True)
class Gated:
    """``after(act(gate(x)) * up(x))``."""

    function: Activation | str  # with its approximation, or the child that computes it
    # The children that compute gate and up, in the order of their calls, or the one that computes
    # both as the halves of its rows.
    projections: tuple[str, ...]
    gate_first: bool  # the gate is the first of the two
    after: tuple[str, ...]  # the children that are called on the product, one after the other

    @property
    def formula(self) -> Formula:
        """The formula that this computes of x."""
        parts = [call_of(each, X) for each in self.projections]
        if len(parts) == 1:
            parts = [function(half, parts[0]) for half in HALVES]
        gate, up = parts if self.gate_first else reversed(parts)
        if isinstance(self.function, str):
            product = call_of(self.function, gate) * up
        else:
            product = function(_FUNCTIONS[self.function], gate) * up
        for each in self.after:
            product = call_of(each, product)
        return product


def match_gated(reading: Reading) -> Gated | None:
    """Return the gated MLP that a forward computes, None if it computes something else."""
    if len(set(reading.calls)) != len(reading.calls) or reading.formula.coefficient != 1:
        return None
    for gated in _candidates(reading.calls):
        if gated.formula == reading.formula:
            if reading.uses_dtypes:
                # The dtypes of its linear layers are not known before the call.
                raise RefusedError("it depends on dtypes between its linear layers")
            return gated
    return None


def _candidates(calls: list[str]) -> Iterator[Gated]:
    """Yield the gated MLPs that call the children of a module in an order."""
    activations: list[Activation | str] = [*_FUNCTIONS, *calls]
    for activation in activations:
        others = [each for each in calls if each != activation]
        for count in range(1, min(2, len(others)) + 1):
            for gate_first in (True, False):
                yield Gated(activation, tuple(others[:count]), gate_first, tuple(others[count:]))


def check_gated(
    module: nn.Module,
    gated: Gated,
    conditions: Conditions,
    activations: Mapping[int, ActivationRecipe | str],
    of_functions: Mapping[Activation, ActivationRecipe],
) -> GatedRecipe:
    """Return the recipe of a gated MLP.

    Raises RefusedError if the child that computes its activation is none that an op computes.
    """
    name = kind = None
    if isinstance(gated.function, str):
        name = gated.function
        child = module._modules[name]
        found = activations.get(id(child), "no op computes it")
        if isinstance(found, str):
            raise RefusedError(f"its activation {name} cannot be swapped: {found}")
        recipe, kind = found, base_of(child) or type(child)
    else:
        recipe = of_functions[gated.function]
    parts = gated.projections, gated.gate_first, gated.after
    return GatedRecipe(f"{recipe.op}_mul", conditions, recipe, name, kind, *parts)


def looks_gated(module: nn.Module, activations: Mapping[int, ActivationRecipe | str]) -> bool:
    """Return whether a module has an activation and linear layers that fit a gated MLP."""
    linear: list[tuple[int, int]] = []
    for child in module._modules.values():
        inner, outer = getattr(child, "in_features", None), getattr(child, "out_features", None)
        if id(child) not in activations and isinstance(inner, int) and isinstance(outer, int):
            linear.append((inner, outer))
    active = sum(id(child) in activations for child in module._modules.values())
    if active != 1 or len(linear) not in (2, 3):
        return False
    for i, (hidden, _) in enumerate(linear):
        wide = [*linear[:i], *linear[i + 1 :]]
        if len(set(wide)) == 1 and wide[0][1] * len(wide) == 2 * hidden:
            return True
    return False

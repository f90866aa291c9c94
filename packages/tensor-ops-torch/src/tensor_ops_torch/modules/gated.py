"""Modules that are gated MLPs, SwiGLU and GeGLU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from tensor_ops_torch.modules.activations import FUNCTIONS
from tensor_ops_torch.modules.algebra import Formula, Function
from tensor_ops_torch.modules.classes import base_of
from tensor_ops_torch.modules.conditions import Conditions
from tensor_ops_torch.modules.reading import Reading
from tensor_ops_torch.modules.recipes import ActivationRecipe, GatedRecipe
from tensor_ops_torch.modules.refusal import RefusedError
from tensor_ops_torch.modules.values import X

__all__ = ["check_gated", "looks_gated", "match_gated"]

_HALVES = ("first half", "second half")
_NAMES = {
    f"{op} {approximate}" if approximate else op: (op, approximate)
    for op, approximate in FUNCTIONS
    if op != "softmax"
}


@dataclass(frozen=True)
class Gated:
    """``after(act(gate(x)) * up(x))``.

    Attributes
    ----------
    function : (str, str or None) or str
        The activation and its approximation, or the child that computes it.
    projections : tuple of str
        The children that compute gate and up, in the order of their calls, or the one that
        computes both.
    gate_first : bool
        Whether the gate is the first of the two.
    after : tuple of str
        The children that are called on the product, each on what the one before returns.
    """

    function: tuple[str, str | None] | str
    projections: tuple[str, ...]
    gate_first: bool
    after: tuple[str, ...]


def match_gated(reading: Reading) -> Gated | None:
    """Return the gated MLP that a forward computes, None if it computes something else."""
    formula, after = reading.formula, []
    while (call := _call(formula)) is not None:
        name, formula = call
        after.append(name)
    after.reverse()
    if formula.coefficient != 1 or len(formula.factors) != 2:
        return None
    factors = [Formula(1, frozenset({each})) for each in formula.factors]
    for act, up in (factors, factors[::-1]):
        function, gate = _activation(act)
        first, second = _projection(gate), _projection(up)
        if function is None or first is None or second is None:
            continue
        children = [] if isinstance(function, tuple) else [function]
        if first[1] is None and second[1] is None:
            order = tuple(each for each in reading.calls if each in (first[0], second[0]))
            found = Gated(function, order, order[0] == first[0], tuple(after))
        elif first[0] == second[0] and {first[1], second[1]} == set(_HALVES):
            found = Gated(function, (first[0],), first[1] == _HALVES[0], tuple(after))
        else:
            continue
        called = sorted([*found.projections, *children, *after])
        # Each is called once, and the product's children come last.
        if called == sorted(reading.calls) and len(set(called)) == len(called):
            if reading.uses_dtypes:
                # Those of its linear layers are known at the call, and not before.
                raise RefusedError("it depends on dtypes between its linear layers")
            return found
    return None


def check_gated(
    module: nn.Module,
    gated: Gated,
    conditions: Conditions,
    activations: Mapping[int, ActivationRecipe | str],
    of_functions: Mapping[tuple[str, str | None], ActivationRecipe],
) -> GatedRecipe:
    """Return the recipe of a gated MLP.

    Raises
    ------
    RefusedError
        If the child that computes its activation is none that an op computes.
    """
    name = base = None
    if isinstance(gated.function, tuple):
        recipe = of_functions[gated.function]
    else:
        name = gated.function
        child = module._modules[name]
        found = activations.get(id(child), "no op computes it")
        if isinstance(found, str):
            raise RefusedError(f"its activation {name} cannot be swapped: {found}")
        recipe, base = found, base_of(child) or type(child)
    return GatedRecipe(
        f"{recipe.op}_mul",
        recipe.approximate,
        gated.projections,
        gated.gate_first,
        gated.after,
        name,
        base,
        None if name is None else recipe,
        recipe.dtypes,
        conditions,
    )


def looks_gated(module: nn.Module, activations: Mapping[int, ActivationRecipe | str]) -> bool:
    """Return whether a module has an activation and linear layers that fit a gated MLP."""
    linear: list[tuple[int, int]] = []
    active = 0
    for child in module._modules.values():
        if child is None:
            continue
        inner, outer = getattr(child, "in_features", None), getattr(child, "out_features", None)
        if id(child) in activations:
            active += 1
        elif isinstance(inner, int) and isinstance(outer, int):
            linear.append((inner, outer))
    if active != 1 or len(linear) not in (2, 3):
        return False
    for i, (hidden, _) in enumerate(linear):
        wide = [*linear[:i], *linear[i + 1 :]]
        if len(set(wide)) == 1 and wide[0][1] * len(wide) == 2 * hidden:
            return True
    return False


def _call(formula: Formula) -> tuple[str, Formula] | None:
    """Return the child that a formula is a call of, and what it is called with."""
    factor = formula.only
    if isinstance(factor, Function) and factor.name.startswith("call "):
        return factor.name.removeprefix("call "), factor.argument
    return None


def _activation(formula: Formula) -> tuple[tuple[str, str | None] | str | None, Formula]:
    """Return the activation that a formula is, a function or a child, and its argument."""
    factor = formula.only
    if isinstance(factor, Function) and factor.name in _NAMES:
        return _NAMES[factor.name], factor.argument
    call = _call(formula)
    return (None, formula) if call is None else call


def _projection(formula: Formula) -> tuple[str, str | None] | None:
    """Return the child that a formula is a call of with x, and the half of it."""
    half = None
    factor = formula.only
    if isinstance(factor, Function) and factor.name in _HALVES:
        half, formula = factor.name, factor.argument
    call = _call(formula)
    return (call[0], half) if call is not None and call[1] == X else None

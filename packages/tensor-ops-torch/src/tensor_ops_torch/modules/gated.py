"""Recognising gated MLPs, SwiGLU and GeGLU, by what they do between their linear layers.

The linear layers are not run: stand-ins return numbers of our own, so that what the module does
with them is seen exactly, and cheaply.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tensor_ops.accuracy import Bound
from tensor_ops.ops import OPS
from tensor_ops_torch.modules.activations import FUNCTIONS, exact
from tensor_ops_torch.modules.probe import (
    PROBED,
    RefusedError,
    difference,
    gradient_difference,
    normal,
    run,
    shadow,
    stand_in,
    unsupported,
)
from tensor_ops_torch.modules.recipes import ActivationRecipe, GatedRecipe
from tensor_ops_torch.ops import OPERATORS
from tensor_ops_torch.tensors import DTYPE_NAMES

__all__ = ["looks_gated", "recognise_gated"]

# How far from a formula what is computed may be that is meant to be it.
_NEAR = 0.25
# Two ops, each with bounds of its own.
_FLOAT32 = Bound(8)


@dataclass(frozen=True)
class _Shape:
    """The linear layers of a module that may be a gated MLP."""

    wide: tuple[str, ...]
    down: str
    hidden: int
    inner: int
    activation: str | None
    others: tuple[str, ...]


@dataclass(frozen=True)
class _Roles:
    """Which linear layer is which: `gate` is 0 or 1, of `wide` or of the halves of the one."""

    shape: _Shape
    gate: int
    function: tuple[str, str | None]
    order: tuple[str, ...]

    @property
    def op(self) -> str:
        return f"{self.function[0]}_mul"

    @property
    def scalars(self) -> tuple[str, ...]:
        return () if self.function[1] is None else (self.function[1],)

    @property
    def gate_first(self) -> bool:
        """Whether the gate is the first of what the calls in `order` return."""
        in_order = len(self.order) == 1 or self.order == self.shape.wide
        return (self.gate == 0) == in_order


@dataclass
class _Calls:
    """What the stand-ins saw."""

    order: list[str] = field(default_factory=list)
    down: list[Tensor] = field(default_factory=list)
    strange: str | None = None


def looks_gated(
    module: nn.Module, activations: Mapping[int, ActivationRecipe | str], device: torch.device
) -> bool:
    """Return whether a module has the linear layers of a gated MLP and uses them as one.

    `activations` are the recipes of activations, or why they have none, by the id of their module.
    """
    shapes = _shapes(module, activations)
    if not shapes:
        return False
    if shapes[0].activation is not None:
        return True
    if shapes[0].others or device.type == "meta":
        return False
    try:
        return _roles(module, shapes, device) is not None
    except RefusedError:
        return False


def recognise_gated(
    module: nn.Module, activations: Mapping[int, ActivationRecipe | str], device: torch.device
) -> GatedRecipe:
    """Return the recipe of a gated MLP.

    Raises
    ------
    RefusedError
    """
    shapes = _shapes(module, activations)
    any_shape = shapes[0]
    _check_structure(module, any_shape)
    name, recipe, base = any_shape.activation, None, None
    if name is not None:
        child = module._modules[name]
        found = activations[id(child)]
        if isinstance(found, str):
            raise RefusedError(f"its activation {name} cannot be swapped: {found}")
        recipe = found
        base = getattr(type(child), "_tensor_ops_base", type(child))
    roles = _roles(module, shapes, device)
    if roles is None:
        raise RefusedError(
            "what it does between its linear layers is neither silu(gate) * up nor gelu(gate) * up"
        )
    if recipe is not None and (recipe.op, recipe.approximate) != roles.function:
        raise RefusedError(f"it does not use its activation {name} as {recipe.op}")
    reasons = {dtype: _confirm(module, roles, dtype, device) for dtype in PROBED}
    for dtype in dict.fromkeys((torch.float32, _dtype(module._modules[roles.shape.down]))):
        if reasons[dtype] is not None:
            raise RefusedError(
                f"compared with {roles.op} in {DTYPE_NAMES[dtype]}, what it does between its "
                f"linear layers {reasons[dtype]}"
            )
    _confirm_gradients(module, roles, device)
    return GatedRecipe(
        roles.op,
        roles.function[1],
        roles.order,
        roles.gate_first,
        roles.shape.down,
        name,
        base,
        recipe,
        tuple(dtype for dtype, reason in reasons.items() if reason is None),
    )


def _shapes(module: nn.Module, activations: Mapping[int, ActivationRecipe | str]) -> list[_Shape]:
    """Return how the linear layers of a module may make a gated MLP."""
    linear: dict[str, tuple[int, int]] = {}
    active: list[str] = []
    others: list[str] = []
    for name, child in module._modules.items():
        sizes = getattr(child, "in_features", None), getattr(child, "out_features", None)
        if child is None:
            continue
        if id(child) in activations:
            active.append(name)
        elif isinstance(sizes[0], int) and isinstance(sizes[1], int):
            linear[name] = sizes[0], sizes[1]
        else:
            others.append(name)
    if len(active) > 1 or len(linear) not in (2, 3):
        return []
    found = []
    for down, (inner, _) in linear.items():
        wide = tuple(name for name in linear if name != down)
        hidden, out = linear[wide[0]]
        if any(linear[name] != (hidden, out) for name in wide):
            continue
        if out * len(wide) == 2 * inner:
            activation = active[0] if active else None
            found.append(_Shape(wide, down, hidden, inner, activation, tuple(others)))
    return found


def _dtype(linear: nn.Module | None) -> torch.dtype:
    weight = getattr(linear, "weight", None)
    floating = isinstance(weight, Tensor) and weight.dtype in DTYPE_NAMES
    return weight.dtype if floating else torch.float32  # type: ignore[union-attr]


def _check_structure(module: nn.Module, shape: _Shape) -> None:
    if shape.others:
        kinds = ", ".join(
            f"{name} ({type(module._modules[name]).__name__})" for name in shape.others
        )
        raise RefusedError(f"it has children that the op does not know: {kinds}")
    if any(each is not None for each in module._parameters.values()):
        raise RefusedError(f"it has parameters of its own: {', '.join(module._parameters)}")
    if any(each is not None for each in module._buffers.values()):
        raise RefusedError(f"it has buffers: {', '.join(module._buffers)}")
    functions = [name for name, value in vars(module).items() if callable(value)]
    if functions:
        raise RefusedError(
            f"it holds functions that could be replaced unnoticed: {', '.join(functions)}; make "
            "its activation a module"
        )
    for name in (*shape.wide, shape.down):
        weight = module._modules[name]._parameters.get("weight")
        if weight is not None and weight.device.type == "meta":
            raise RefusedError(f"the weight of its {name} {unsupported(weight)}")


def _roles(module: nn.Module, shapes: list[_Shape], device: torch.device) -> _Roles | None:
    """Find out which of its linear layers is which, and what is between them.

    Raises
    ------
    RefusedError
        If it runs in none of the ways in which its linear layers fit together.
    """
    best, found, reason = _NEAR, None, None
    for shape in shapes:
        drawn = _draw(shape, torch.float32)
        try:
            hidden, order = _run(module, shape, tuple(each.to(device) for each in drawn))
        except RefusedError as refused:
            reason = refused
            continue
        values = hidden.detach().cpu().double()
        for index, function in itertools.product((0, 1), FUNCTIONS):
            gate, up = drawn[index].double(), drawn[1 - index].double()
            if values.shape == gate.shape:
                errors = (values - exact(function, gate) * up).abs() / (1 + up.abs())
                if (error := errors.max().item()) <= best:
                    best, found = error, _Roles(shape, index, function, order)
    if found is None and reason is not None:
        raise reason
    return found


def _draw(shape: _Shape, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    scales = torch.tensor([1.0, 3.0, 1e-3, 30.0, 0.5], dtype=torch.float64)[:, None]
    first = scales * normal(5, shape.inner, seed=5)
    second = scales.flip(0) * normal(5, shape.inner, seed=6)
    return first.to(dtype)[None], second.to(dtype)[None]


def _run(
    module: nn.Module, shape: _Shape, results: tuple[Tensor, ...], training: bool = False
) -> tuple[Tensor, tuple[str, ...]]:
    """Return what goes into `down`, where the linear layers before it return these results."""
    calls, first = _Calls(), results[0]
    x = normal(*first.shape[:-1], shape.hidden, seed=7).to(first)
    answers = (torch.cat(results, -1),) if len(shape.wide) == 1 else results
    end = torch.zeros(*first.shape[:-1], 1).to(first)

    def answer(name: str, result: Tensor) -> Callable[..., Tensor]:
        def returned(*args: Any, **kwargs: Any) -> Tensor:
            calls.order.append(name)
            if kwargs or len(args) != 1 or args[0] is not x:
                calls.strange = f"it calls {name} with something else than its input"
            return result.clone()

        return returned

    def down(*args: Any, **kwargs: Any) -> Tensor:
        if kwargs or len(args) != 1 or type(args[0]) is not Tensor:
            calls.strange = f"it calls {shape.down} with something else than a tensor"
        else:
            calls.down.append(args[0])
        return end

    children: dict[str, nn.Module] = {}
    for name, child in module._modules.items():
        if child is None:
            continue
        if name == shape.down:
            children[name] = stand_in(child, down)
        elif name in shape.wide:
            children[name] = stand_in(child, answer(name, answers[shape.wide.index(name)]))
        else:
            children[name] = stand_in(child, training=training)
    y = run(shadow(module, None, children, training=training), x)
    if calls.strange is not None:
        raise RefusedError(calls.strange)
    if sorted(calls.order) != sorted(shape.wide) or len(calls.down) != 1:
        raise RefusedError("it does not call each of its linear layers once")
    if y is not end:
        raise RefusedError(f"it changes what its {shape.down} returns")
    return calls.down[0], tuple(calls.order)


def _confirm(
    module: nn.Module, roles: _Roles, dtype: torch.dtype, device: torch.device
) -> str | None:
    """Say how the module, or the op, differs from the formula in a dtype, None if neither does."""
    if dtype is torch.float64 and device.type == "mps":
        return "is unknown"
    op = OPERATORS[roles.op]
    drawn = tuple(each.to(device) for each in _draw(roles.shape, dtype))
    gate, up = drawn[roles.gate], drawn[1 - roles.gate]
    wanted = exact(roles.function, gate.cpu().double()) * up.cpu().double()
    bound = _FLOAT32 if dtype is torch.float32 else OPS[roles.op].bounds[DTYPE_NAMES[dtype]]
    scale = 1 + up.cpu().double().abs()
    for training in (False, True):
        try:
            hidden, _ = _run(module, roles.shape, drawn, training)
        except RefusedError as error:
            return f"is unknown ({error})"
        if hidden.dtype != dtype:
            return f"has dtype {hidden.dtype}"
        if (found := difference(hidden, wanted, bound, scale)) is not None:
            return found
    found = difference(op(gate, up, *roles.scalars), wanted, bound, scale)
    return None if found is None else f"cannot be computed by the op, whose result {found}"


def _confirm_gradients(module: nn.Module, roles: _Roles, device: torch.device) -> None:
    first, second = (each.to(device) for each in _draw(roles.shape, torch.float32))

    def own(*results: Tensor) -> Tensor:
        return _run(module, roles.shape, results, training=True)[0]

    def wanted(*results: Tensor) -> Tensor:
        return exact(roles.function, results[roles.gate]) * results[1 - roles.gate]

    found = gradient_difference(own, wanted, (first, second))
    if found is not None:
        raise RefusedError(f"what it does between its linear layers {found}")

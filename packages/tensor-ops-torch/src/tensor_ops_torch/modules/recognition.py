"""The op that a module is, known by the code of its forward."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import FunctionType
from typing import Any

import torch
from torch import nn

from tensor_ops import BackendError
from tensor_ops.extension import OPS, function_of
from tensor_ops_torch.modules.activations import check_activation
from tensor_ops_torch.modules.classes import Recipe, base_of, has_other_forward, swapped_class
from tensor_ops_torch.modules.conditions import Conditions
from tensor_ops_torch.modules.forms import FUNCTIONS, Activation
from tensor_ops_torch.modules.matching import Match, check_calls, held_in, match, nearest, stored_in
from tensor_ops_torch.modules.norms import Norm, check_norm, guess_norms
from tensor_ops_torch.modules.recipes import ActivationRecipe, GatedRecipe
from tensor_ops_torch.modules.samples import SAMPLED, shadow
from tensor_ops_torch.modules.source import RefusedError, definition_of
from tensor_ops_torch.operators.tensors import device_route

__all__ = ["Outcome", "recognise"]

_NAMED = re.compile("(RMS|Layer)_?Norm|SiLU|Swish|GELU|SwiGLU|GeGLU", re.IGNORECASE)
# An unknown forward that calls one of these may be meant to be an op.
_NORMING = {"rsqrt", "layer_norm", "rms_norm", "std", "var"}
_ACTIVATING = {"silu", "gelu", "erf"}
_Activations = Mapping[int, ActivationRecipe | str]


@dataclass(frozen=True)
class Outcome:
    """The recipe of a module, or why it has none."""

    recipe: Recipe | None = None
    reason: str | None = None
    missing: str | None = None  # what it computes and no op does


def recognise(
    module: nn.Module,
    device: torch.device,
    activations: _Activations,
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


def _find(module: nn.Module, activations: _Activations, trusted: Collection[type]) -> Recipe | None:
    if isinstance(module, torch.jit.ScriptModule):
        if _NAMED.search(str(getattr(module, "original_name", ""))):
            raise RefusedError("it was compiled by torch.jit; swap before")
        return None
    if type(module) in trusted:
        return _guess(module)
    forward = stored_in(type(module), "forward")
    of_pytorch = isinstance(forward, FunctionType) and _PYTORCH.get(forward)
    if of_pytorch:
        _check_parametrizations(module)
        check_calls(type(module))
        return of_pytorch(module)
    try:
        found = match(module)
        if found is not None:
            _check_parametrizations(module)
            return _recipe(module, found, activations)
        stacked = [e for e in module._parameters.values() if e is not None and e.ndim == 3]
        if len(stacked) >= 2 and any(id(e) in activations for e in module._modules.values()):
            reason = "its experts share tensors of three axes, which no op of tensor_ops takes"
            raise RefusedError(reason, missing="grouped MLP")
        if _looks_like(module, activations):
            _check_parametrizations(module)
            _refuse_unknown(module)
    except RefusedError:
        _check_class(module)  # what was done to the module is said before what its forward does
        raise
    return None


def _check_parametrizations(module: nn.Module) -> None:
    if "parametrizations" in module._modules:
        names = ", ".join(module._modules["parametrizations"]._modules)
        raise RefusedError(f"its {names} is parametrized; swap before it is")


def _refuse_unknown(module: nn.Module) -> None:
    """Say why the forward of a module that looks like an op is not known."""
    kind = type(module)
    check_calls(kind)
    try:
        definition_of(stored_in(kind, "forward"))
    except RefusedError as error:
        raise RefusedError(f"its forward {error}") from None
    is_gated = any(each is not None for each in module._modules.values())
    near = nearest(kind, is_gated)
    said = "" if near is None else f" (the nearest is {near})"
    advice = "" if is_gated else f"; trust=[{kind.__name__}] goes by its results on samples"
    raise RefusedError(f"its forward has the code of none of the known forms{said}{advice}")


def _recipe(module: nn.Module, found: Match, activations: _Activations) -> Recipe:
    """Return the recipe of a module whose code is that of a form."""
    form, names = found.form, found.names
    conditions = Conditions.of(found.watched, found.functions, found.held)
    if form.missing is not None:
        what = form.missing
        raise RefusedError(f"it computes {what}, which no op of tensor_ops does", missing=what)
    if form.projections:
        return _gated(module, found, conditions, activations)
    if issubclass(form.code, nn.LayerNorm):
        return _norm_of_pytorch(module, "layer_norm", "bias", found.watched, found.functions)
    if form.op in ("rms_norm", "layer_norm"):
        eps: float | str = names["eps"] if form.eps is None else form.eps
        norm = Norm(form.op, names.get("weight"), names.get("bias"), form.offset, eps)
        return check_norm(module, dict.fromkeys(SAMPLED, norm), conditions, found.width)
    activation = found.activation or (str(form.op), form.approximate)
    return check_activation(module, activation, SAMPLED, conditions)


def _gated(
    module: nn.Module, found: Match, conditions: Conditions, activations: _Activations
) -> GatedRecipe:
    """Return the recipe of a gated MLP.

    Raises RefusedError if the child that computes its activation is none that an op computes.
    """
    form, names = found.form, found.names
    projections = tuple(names[each] for each in form.projections)
    after = tuple(names[each] for each in form.after)
    name = kind = None
    if "act" in names:
        name = names["act"]
        child = module._modules[name]
        known = activations.get(id(child), "no op computes it")
        if isinstance(known, ActivationRecipe) and f"{known.op}_mul" not in OPS:
            known = f"no op multiplies what {known.op} returns"
        if isinstance(known, str):
            raise RefusedError(f"its activation {name} cannot be swapped: {known}")
        recipe, kind = known, base_of(child) or type(child)
    else:
        recipe = _of_functions()[str(form.op), form.approximate]
    parts = projections, form.gate_first, after
    return GatedRecipe(f"{recipe.op}_mul", conditions, recipe, name, kind, *parts)


def _layer_norm(module: nn.Module) -> Recipe:
    return _norm_of_pytorch(module, "layer_norm", "bias")


def _rms_norm(module: nn.Module) -> Recipe:
    return _norm_of_pytorch(module, "rms_norm", None)


def _norm_of_pytorch(
    module: nn.Module,
    op: str,
    bias: str | None,
    decided_by: Mapping[str, Any] | None = None,
    functions: Collection[tuple[type, str, Any]] = (),
) -> Recipe:
    shape, eps = held_in(module, "normalized_shape"), held_in(module, "eps")
    if not (type(shape) is tuple and len(shape) == 1):
        raise RefusedError(f"its normalized_shape is {shape}, expected one axis")
    names = [name for name in ("weight", bias) if name is not None]
    absent = {name for name in names if held_in(module, name) is None}
    held = [name for name in names if name not in absent]
    watched = {"normalized_shape": shape, **dict.fromkeys(absent), **(decided_by or {})}
    if eps is None:
        watched["eps"] = None
    vectors = [None if name is None or name in absent else name for name in ("weight", bias)]
    norms = {}
    for dtype in SAMPLED:
        default = torch.finfo(torch.float64 if dtype is torch.float64 else torch.float32).eps
        norms[dtype] = Norm(op, vectors[0], vectors[1], False, default if eps is None else "eps")
    conditions = Conditions.of(watched, functions or _forward_of(module), held)
    return check_norm(module, norms, conditions, shape[0])


def _silu(module: nn.Module) -> Recipe:
    if held_in(module, "inplace"):
        raise RefusedError("its forward writes to its input (inplace=True)")
    return _activation_of_pytorch(module, ("silu", None), inplace=False)


def _gelu(module: nn.Module) -> Recipe:
    approximate = held_in(module, "approximate")
    if approximate not in ("none", "tanh"):
        raise RefusedError(f"its approximate is {approximate!r}, expected 'none' or 'tanh'")
    return _activation_of_pytorch(module, ("gelu", approximate), approximate=approximate)


def _softmax(module: nn.Module) -> Recipe | None:
    if held_in(module, "dim") != -1:
        return None
    return _activation_of_pytorch(module, ("softmax", None), dim=-1)


def _activation_of_pytorch(module: nn.Module, activation: Activation, **watched: Any) -> Recipe:
    conditions = Conditions.of(watched, _forward_of(module), ())
    return check_activation(module, activation, SAMPLED, conditions)


def _forward_of(module: nn.Module) -> set[tuple[type, str, Any]]:
    return {(type(module), "forward", type(module).forward)}


_PYTORCH: dict[Any, Callable[[nn.Module], Recipe | None]] = {
    nn.GELU.forward: _gelu,
    nn.LayerNorm.forward: _layer_norm,
    nn.RMSNorm.forward: _rms_norm,
    nn.SiLU.forward: _silu,
    nn.Softmax.forward: _softmax,
}


@lru_cache(maxsize=1)
def _of_functions() -> dict[Activation, ActivationRecipe]:
    """Return the recipes of PyTorch's own activations."""
    found = {}
    for module in (nn.SiLU(), nn.GELU(), nn.GELU("tanh")):
        recipe = _find(module, {}, ())
        assert isinstance(recipe, ActivationRecipe)
        found[recipe.op, recipe.approximate] = recipe
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
        for activation in (*dict.fromkeys(FUNCTIONS.values()), ("softmax", None)):
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


def _looks_like(module: nn.Module, activations: _Activations) -> bool:
    """Return whether a module whose forward is not known may be meant to be an op."""
    kind = type(module)
    if kind.__module__.startswith("torch.nn.modules."):
        return False
    if _looks_gated(module, activations):
        return True
    if any(each is not None for each in module._modules.values()):
        return False
    if isinstance(module, nn.modules.batchnorm._NormBase | nn.GroupNorm):
        return False
    if _NAMED.search(kind.__name__):
        return True
    tensors = [each for each in module._parameters.values() if each is not None]
    own = (vars(each).values() for each in kind.__mro__[: kind.__mro__.index(nn.Module)])
    functions = (each for values in own for each in values if isinstance(each, FunctionType))
    names = {name for each in functions for name in each.__code__.co_names}
    if tensors:
        few = all(each.ndim <= 1 for each in tensors) and any(each.ndim for each in tensors)
        return few and not names.isdisjoint(_NORMING)
    return not names.isdisjoint(_ACTIVATING)


def _looks_gated(module: nn.Module, activations: _Activations) -> bool:
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

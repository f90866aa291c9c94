"""Swapping the modules of a model for the ops of tensor_ops, and back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from tensor_ops_torch.modules.classes import (
    Recipe,
    base_of,
    has_other_forward,
    recipe_of,
    set_class,
    swapped_class,
)
from tensor_ops_torch.modules.recipes import ActivationRecipe
from tensor_ops_torch.modules.recognition import Outcome, recognise
from tensor_ops_torch.modules.report import SwapEntry, SwapError, SwapReport
from tensor_ops_torch.modules.samples import isolated
from tensor_ops_torch.modules.source import forget_sources

__all__ = [
    "prepare_model",
    "prepare_model_with_custom_kernels",
    "restore_model",
    "swap_modules",
    "swap_report",
]


def swap_modules(
    model: nn.Module, strict: bool = False, trust: Iterable[type[nn.Module]] = ()
) -> SwapReport:
    """Let ops of tensor_ops compute the norms, activations and gated MLPs of a model.

    RMSNorm, LayerNorm, softmax, SiLU, GELU, SwiGLU and GeGLU MLPs are known by their class, where
    it is PyTorch's, or by the source code of their ``forward``, which has to be one of the forms
    that models have, but for names. Each gets another ``forward``, and nothing else: parameters,
    buffers, hooks, names in ``state_dict()``, identity and ``isinstance`` stay.

    Parameters
    ----------
    model : torch.nn.Module
        It is changed in place; `restore_model` undoes it.
    strict : bool
        Whether a module that looks like an op and cannot be swapped is an error.
    trust : iterable of type
        Classes of norms and activations whose source code is not known, and that compute what
        their results on samples show.

    Returns
    -------
    SwapReport
        With a line for each module that looks like an op: swapped, or the reason why not.

    Raises
    ------
    TypeError
        If `model` is no module, or what is trusted no class of modules.
    SwapError
        If `strict`, naming what cannot be swapped. Nothing is changed then.

    Notes
    -----
    Results stay within the error bounds of the ops, and the modules that are swapped were within
    those bounds of the formula themselves; half types have 2 ULP.

    Where a call is not what a module was recognised by, as under autocast, for another dtype or
    with an attribute that has changed, its own forward runs. A module that is given a ``qconfig``,
    as eager quantisation does, gets its own class back.

    Examples
    --------
    >>> import torch
    >>> from tensor_ops_torch.modules import swap_modules
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.SiLU(), torch.nn.LayerNorm(8))
    >>> print(swap_modules(model))
    2 of 2 modules swapped
      module  class      op          outcome
      1       SiLU       silu        swapped
      2       LayerNorm  layer_norm  swapped
    """
    found = _inspect(model, _classes(trust))
    report = SwapReport(tuple(entry for _, entry, _ in found))
    if strict and report.refused:
        lines = "".join(
            f"\n  {each.name or '(model)'} ({each.class_name}): {each.reason}"
            for each in report.refused
        )
        raise SwapError(
            f"swap_modules: {len(report.refused)} of {len(report.entries)} modules cannot be "
            f"swapped:{lines}\nNothing was changed; strict=False swaps the others",
            report,
        )
    entries = []
    for module, entry, recipe in found:
        if recipe is None or entry.swapped:
            entries.append(entry)
            continue
        set_class(module, swapped_class(type(module), recipe))
        entries.append(replace(entry, swapped=True))
    return SwapReport(tuple(entries))


def swap_report(model: nn.Module) -> SwapReport:
    """Return what `swap_modules` has done to a model, or would do; nothing is changed.

    Parameters
    ----------
    model : torch.nn.Module

    Returns
    -------
    SwapReport

    Raises
    ------
    TypeError
        If `model` is no module.

    Examples
    --------
    >>> import torch
    >>> import tensor_ops_torch
    >>> print(tensor_ops_torch.swap_report(torch.nn.SiLU(inplace=True)))
    0 of 1 module swapped
      module   class  op  outcome
      (model)  SiLU   -   its forward writes to its input (inplace=True)
    """
    return SwapReport(tuple(entry for _, entry, _ in _inspect(model)))


def restore_model(model: nn.Module) -> nn.Module:
    """Give every swapped module of a model its own forward again.

    Parameters
    ----------
    model : torch.nn.Module
        It is changed in place.

    Returns
    -------
    torch.nn.Module
        `model`.

    Raises
    ------
    TypeError
        If `model` is no module.
    SwapError
        If something was built on a swapped module that has to be undone first: a
        parametrization, a wrapper that shards it, another ``forward``. Nothing is changed then.

    Examples
    --------
    >>> import torch
    >>> import tensor_ops_torch
    >>> model = torch.nn.Sequential(torch.nn.GELU())
    >>> model = tensor_ops_torch.prepare_model_with_custom_kernels(model)
    >>> type(tensor_ops_torch.restore_model(model)[0]) is torch.nn.GELU
    True
    """
    _check(model, "restore_model")
    swapped, blocked = [], []
    for name, module in model.named_modules():
        recipe, base = recipe_of(module), base_of(module)
        if recipe is None:
            continue
        if base is None:
            reason = f"its class was changed to {type(module).__name__} after the swap"
        elif has_other_forward(module):
            reason = "its forward was replaced on the instance after the swap"
        else:
            swapped.append((module, base))
            continue
        blocked.append(SwapEntry(name, type(module).__name__, recipe.op, True, reason))
    if blocked:
        lines = "".join(f"\n  {each.name or '(model)'}: {each.reason}" for each in blocked)
        raise SwapError(
            f"restore_model: {len(blocked)} modules cannot be restored:{lines}\n"
            "Nothing was changed; undo what was done after the swap first",
            SwapReport(tuple(blocked)),
        )
    for module, base in swapped:
        set_class(module, base)
    return model


def prepare_model(model: nn.Module) -> nn.Module:
    """Swap what can be swapped in a model: use `prepare_model_with_custom_kernels`, its other name.

    The method ``prepare_model`` of a backend does something else: it moves a model to its device.
    """
    return prepare_model_with_custom_kernels(model)


def prepare_model_with_custom_kernels(
    model: nn.Module, strict: bool = False, trust: Iterable[type[nn.Module]] = ()
) -> nn.Module:
    """Swap modules as `swap_modules` does, and return the model.

    Parameters
    ----------
    model : torch.nn.Module
        It is changed in place.
    strict : bool
        Whether a module that looks like an op and cannot be swapped is an error.
    trust : iterable of type
        Classes that `swap_modules` takes for what their results on samples show.

    Returns
    -------
    torch.nn.Module
        `model`; `swap_report` says what was done to it.

    Raises
    ------
    TypeError
        If `model` is no module.
    SwapError
        If `strict`, naming what cannot be swapped. Nothing is changed then.

    Examples
    --------
    >>> import torch
    >>> import tensor_ops_torch
    >>> model = torch.nn.Sequential(torch.nn.SiLU(inplace=True))
    >>> tensor_ops_torch.prepare_model_with_custom_kernels(model, strict=True)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tensor_ops_torch.modules.report.SwapError: swap_modules: 1 of 1 modules cannot be swapped:
      0 (SiLU): its forward writes to its input (inplace=True)
    Nothing was changed; strict=False swaps the others
    """
    swap_modules(model, strict, trust)
    return model


_SIMPLE = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device)
# Every module has these; its tensors and children are looked at by themselves.
_INTERNAL = vars(nn.Module()).keys()
_Found = tuple[nn.Module, SwapEntry, Recipe | None]


def _inspect(model: nn.Module, trusted: Collection[type] = ()) -> list[_Found]:
    """Return every module that looks like an op, its entry, and its recipe if it has one."""
    _check(model, "swap_modules")
    names: dict[int, list[str]] = {}
    modules: dict[int, nn.Module] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(id(module), []).append(name)
        modules[id(module)] = module
    devices = dict(_devices(model, torch.device("cpu")))
    activations: dict[int, ActivationRecipe | str] = {}
    outcomes: dict[int, Outcome] = {}
    # The layers of a model are alike; one of each kind is looked at.
    seen: dict[Any, Outcome | None] = {}
    with isolated():
        # A gated MLP is recognised by its activation: children come before their parents.
        for key, module in reversed(modules.items()):
            recipe = recipe_of(module)
            if recipe is not None:
                outcome: Outcome | None = Outcome(recipe)
            else:
                of_children = tuple(
                    (name, activations.get(id(child))) for name, child in module.named_children()
                )
                kind = (_configuration(module), devices[key], of_children)
                if kind not in seen:
                    seen[kind] = recognise(module, devices[key], activations, trusted)
                outcome = seen[kind]
            if outcome is None:
                continue
            outcomes[key] = outcome
            if isinstance(outcome.recipe, ActivationRecipe):
                activations[key] = outcome.recipe
            elif outcome.reason is not None and not (module._parameters or module._modules):
                activations[key] = outcome.reason
    forget_sources()
    found: list[_Found] = []
    for key, module in modules.items():
        if key not in outcomes:
            continue
        outcome = outcomes[key]
        first, *also = names[key]
        entry = SwapEntry(
            first,
            type(module).__name__,
            None if outcome.recipe is None else outcome.recipe.op,
            recipe_of(module) is not None,
            outcome.reason,
            tuple(also),
            outcome.missing,
            type(module) in trusted and outcome.recipe is not None,
        )
        found.append((module, entry, outcome.recipe))
    return found


def _classes(trust: Iterable[type[nn.Module]]) -> frozenset[type[nn.Module]]:
    classes = frozenset(trust) if isinstance(trust, Iterable) else frozenset({trust})
    for each in classes:
        if not (isinstance(each, type) and issubclass(each, nn.Module)):
            raise TypeError(
                f"swap_modules: trust has {each!r}, expected classes of modules, such as [MyNorm]"
            )
    return classes


def _configuration(module: nn.Module) -> Any:
    """Return what tells modules apart whose forwards do the same, as far as can be seen."""
    if isinstance(module, torch.jit.ScriptModule):
        return type(module), id(module)
    fields = tuple(
        (name, _value(value)) for name, value in vars(module).items() if name not in _INTERNAL
    )
    tensors = tuple(
        # Lazy modules have tensors that have no shape yet.
        (name, type(each), each.dtype, each.device, not nn.parameter.is_lazy(each) and each.shape)
        if each is not None
        else (name, None)
        for held in (module._parameters, module._buffers)
        for name, each in held.items()
    )
    children = tuple(
        (name, None if child is None else _configuration(child))
        for name, child in module._modules.items()
    )
    return type(module), fields, tensors, children


def _value(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_value, value))
    # Two that are equal need not do the same: True and 1.
    return (type(value), value) if isinstance(value, _SIMPLE) else (type(value), id(value))


def _devices(module: nn.Module, device: torch.device) -> Iterator[tuple[int, torch.device]]:
    """Yield the id of every module with the device of its own or its parents' parameters."""
    own = next(module.parameters(), None)
    if own is not None:
        device = own.device
    yield id(module), device
    for child in module.children():
        yield from _devices(child, device)


def _check(model: object, function: str) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"{function}: model is of type {type(model).__name__}, expected a Module")

"""The classes of swapped modules, and what their forwards follow.

A swapped module is an instance of a class that is made here: a subclass of the module's own, with
another ``forward``.
"""

from __future__ import annotations

import copyreg
import types
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from torch import nn

from tensor_ops.extension import warn_caller
from tensor_ops_torch.modules.conditions import Conditions
from tensor_ops_torch.modules.source import RefusedError

__all__ = [
    "Forward",
    "Recipe",
    "base_of",
    "has_other_forward",
    "recipe_of",
    "set_class",
    "swapped_class",
]

_RECIPE, _BASE = "_tensor_ops_recipe", "_tensor_ops_base"
Forward = Callable[..., Any]


@dataclass(frozen=True)
class Recipe(ABC):
    """The computation of a swapped module's forward."""

    op: str
    conditions: Conditions  # where they do not hold, the module's own forward runs

    @abstractmethod
    def forward(self, original: Forward, kind: type[nn.Module]) -> Forward:
        """Return the forward of a class, which calls `original` for what is not for an op."""


# Classes live as long as a module of theirs does.
_classes: WeakKeyDictionary[type, WeakValueDictionary[Recipe, type]] = WeakKeyDictionary()


def swapped_class(base: type[nn.Module], recipe: Recipe) -> type[nn.Module]:
    """Return the subclass of a class of modules whose forward follows a recipe.

    It has the name of its base: what looks at names, as ``repr`` and some policies of sharding do,
    finds the module that it knew.
    """
    known = _classes.setdefault(base, WeakValueDictionary())
    found = known.get(recipe)
    if found is None:
        found = known[recipe] = _new_class(base, recipe)
    return found


def recipe_of(module: nn.Module) -> Recipe | None:
    """Return the recipe that the forward of a module follows."""
    return getattr(type(module), _RECIPE, None)


def base_of(module: nn.Module) -> type[nn.Module] | None:
    """Return the class that a swapped module had, None where its class was not made here."""
    return vars(type(module)).get(_BASE)


def has_other_forward(module: nn.Module) -> bool:
    """Return whether a forward was set on an instance that is not its class's own."""
    own = vars(module).get("forward")
    if own is not None and "_hf_hook" in vars(module):
        own = vars(module).get("_old_forward")  # which the hooks of accelerate call
    # accelerate leaves the class's own behind when its hooks are removed.
    is_own = getattr(own, "__func__", None) is type(module).forward and own.__self__ is module
    return own is not None and not is_own


def set_class(module: nn.Module, kind: type[nn.Module]) -> None:
    """Change the class of a module, and with it its forward."""
    fields = vars(module)
    if "_hf_hook" in fields and "_old_forward" in fields:
        fields["_old_forward"] = types.MethodType(kind.forward, module)
    else:
        fields.pop("forward", None)
    module.__class__ = kind


class _QConfig:
    """The attribute that says how a module is quantised.

    Eager quantisation looks a module up by its class: whoever sets this gets the class that the
    module had.
    """

    def __get__(self, module: Any, kind: type) -> Any:
        if module is None or "qconfig" not in vars(module):
            raise AttributeError("qconfig")
        return vars(module)["qconfig"]

    def __set__(self, module: Any, value: Any) -> None:
        vars(module)["qconfig"] = value
        base = base_of(module)
        if value is not None and base is not None and not has_other_forward(module):
            set_class(module, base)

    def __delete__(self, module: Any) -> None:
        if vars(module).pop("qconfig", self) is self:
            raise AttributeError("qconfig")


def _new_class(base: type[nn.Module], recipe: Recipe) -> type[nn.Module]:
    # Some classes keep a list of their subclasses by name, which one more would disturb.
    defining = next(each for each in base.__mro__ if "__init_subclass__" in vars(each))
    if defining.__module__ not in ("builtins", "typing") or type(base) not in (type, ABCMeta):
        raise RefusedError(
            f"its class {base.__name__} runs code when it is subclassed (by __init_subclass__ or "
            "a metaclass)"
        )

    def original(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        # A forward that was put there later need not be a function of the module.
        if not hasattr(type(base.forward), "__get__"):
            return base.forward(*args, **kwargs)
        return super(made, module).forward(*args, **kwargs)

    def __reduce_ex__(self: Any, protocol: Any) -> Any:  # noqa: N807
        reduced = super(made, self).__reduce_ex__(max(int(protocol), 2))
        if type(self) is made and reduced[:2] == (copyreg.__newobj__, (made,)):  # type: ignore[attr-defined]
            return (_rebuild, (base, recipe), *reduced[2:])
        return reduced

    namespace = {
        "qconfig": _QConfig(),
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__reduce_ex__": __reduce_ex__,
        _BASE: base,
        _RECIPE: recipe,
    }
    made: type[nn.Module] = types.new_class(
        base.__name__, (base,), exec_body=lambda body: body.update(namespace)
    )
    forward = recipe.forward(original, made)
    forward.__name__, forward.__qualname__ = "forward", f"{base.__qualname__}.forward"
    forward.__doc__ = base.forward.__doc__
    # Whoever asks for the parameters, as torch.fx.symbolic_trace, gets those of the module's own.
    forward.__wrapped__ = base.forward  # type: ignore[attr-defined]
    made.forward = forward
    return made


def _rebuild(base: type[nn.Module], recipe: Recipe) -> nn.Module:
    """Make the module that was pickled or copied, before its state is set."""
    kind = base
    if recipe.conditions.is_known:
        kind = swapped_class(base, recipe)
    else:
        warn_caller(
            f"{base.__qualname__} was swapped where this model was saved, and its forward is "
            "another one here, so that it runs as it is; call swap_modules(model) again",
            UserWarning,
        )
    made: nn.Module = object.__new__(kind)
    return made

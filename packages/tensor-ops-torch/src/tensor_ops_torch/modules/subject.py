"""The meaning of a module's attributes while its forward is read."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tensor_ops_torch.modules.algebra import Formula, symbol
from tensor_ops_torch.modules.functions import METHODS, PURE, function_called
from tensor_ops_torch.modules.refusal import RefusedError
from tensor_ops_torch.modules.values import (
    Attribute,
    Child,
    Device,
    Itself,
    Method,
    Parent,
    Shape,
    TensorMethod,
    Value,
    X,
)

__all__ = [
    "MISSING",
    "SIMPLE",
    "Reading",
    "Subject",
    "in_class",
    "is_in",
]

MISSING = object()
# The types of values that are constants where a forward has them.
SIMPLE = (bool, int, float, str, type(None), torch.dtype)
_MODULES = (torch, nn, functional, math, torch.special, torch.linalg)


@dataclass
class Reading:
    """The forward of a module as it was read for one dtype of its input and its parameters."""

    dtype: torch.dtype
    # It has ``x``, parameters such as ``self.weight``, and numbers such as ``self.eps``.
    formula: Formula = X
    # The attributes that it was read under, with their values.
    watched: dict[str, Any] = field(default_factory=dict)
    # The functions that it runs, as what attributes of which classes.
    functions: set[tuple[type, str, Any]] = field(default_factory=set)
    # Classes that ``super()`` looks into, and the functions that they do not have.
    passed: set[tuple[type, str]] = field(default_factory=set)
    held: set[str] = field(default_factory=set)  # the parameters and children that it uses
    calls: list[str] = field(default_factory=list)  # the children that it calls, in their order
    width: int | None = None  # the length that a row must have, where a number says so
    uses_dtypes: bool = False  # it converts between dtypes or decides on one

    def known(self, value: Any) -> Any:
        """Return a value that decides something: an attribute is watched from here on."""
        if isinstance(value, Attribute):
            self.watched[value.name] = value.value
            return value.value
        return value


@dataclass(frozen=True)
class Subject:
    """The module whose forward is read."""

    module: nn.Module
    reading: Reading  # it has the attributes that decide something
    numbers: bool  # attributes that hold numbers are constants, and watched

    def knows(self, found: Any) -> bool:
        """Return whether the meaning of an object is known: a module, function or own class."""
        known = (*_MODULES, *type(self.module).__mro__)
        return is_in(found, known) or _is_function(found)

    def get(self, owner: Any, name: str) -> Any:
        """Return what ``owner.name`` is.

        Raises RefusedError if it is not known to be part of an op, or not known to stay as it is.
        """
        if isinstance(owner, Itself):
            return self._of_module(name)
        if isinstance(owner, Value):
            if name == "dtype":
                self.reading.uses_dtypes = True
                return owner.dtype
            if name == "shape":
                return Shape(owner.shape)
            if name == "device":
                return Device()
            if name not in METHODS:
                raise RefusedError(f"uses {name} of a tensor, which is no part of an op")
            return TensorMethod(owner, METHODS[name])
        if isinstance(owner, Parent):
            return self._of_parent(owner.kind, name)
        if isinstance(owner, Child):
            raise RefusedError(f"uses {name} of its child {owner.name}")
        if is_in(owner, type(self.module).__mro__):
            return Method(owner, name, getattr(owner, name, None), bound=False)
        if is_in(owner, _MODULES) or isinstance(owner, torch.finfo):
            found = getattr(owner, name, MISSING)
            if isinstance(found, SIMPLE) or self.knows(found):
                return found
            raise RefusedError(f"uses {name}, which is no part of an op")
        raise RefusedError(f"uses {name} of a {type(owner).__name__}")

    def _of_module(self, name: str) -> Any:
        module, kind = self.module, type(self.module)
        stored = in_class(kind, name)
        if name.startswith("__"):
            raise RefusedError(f"uses the private attribute {name}")
        if name == "training":
            raise RefusedError("depends on train() and eval()")
        if hasattr(type(stored), "__set__") or isinstance(stored, property):
            raise RefusedError(f"reads {name}, which is computed by its class")
        if name in vars(module):
            return self._plain(name, vars(module)[name])
        # Attributes of a class come before the parameters and children of its objects.
        held = module._parameters | module._modules if stored is MISSING else {}
        if name in held and held[name] is None:
            return self._plain(name, None)
        if name in held and name in module._parameters:
            if module._parameters[name].ndim != 1:
                shape = tuple(module._parameters[name].shape)
                raise RefusedError(f"uses {name} of shape {shape}, expected one axis")
            self.reading.held.add(name)
            return Value(symbol(f"self.{name}"), self.reading.dtype, "vector")
        if name in held:
            self.reading.held.add(name)
            return Child(name)
        if name in module._buffers:
            raise RefusedError(f"uses the buffer {name}")
        if stored is MISSING:
            raise RefusedError(f"has no {name}")
        if isinstance(stored, types.FunctionType):
            return Method(kind, name, stored)
        if isinstance(stored, staticmethod):
            return self._plain(name, stored.__func__)
        if hasattr(type(stored), "__get__"):
            raise RefusedError(f"uses {name}, which is computed by its class")
        return self._plain(name, stored)

    def _plain(self, name: str, value: Any) -> Any:
        """Return an attribute that holds a value; all but numbers decide what is computed."""
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and not self.numbers:
            return Attribute(name, value)
        simple = isinstance(value, tuple) and all(isinstance(each, SIMPLE) for each in value)
        if not (isinstance(value, SIMPLE) or simple or _is_function(value)):
            raise RefusedError(f"uses {name}, a {type(value).__name__}")
        self.reading.watched[name] = value
        return value

    def _of_parent(self, kind: type, name: str) -> Any:
        order = type(self.module).__mro__
        for each in order[order.index(kind) + 1 :]:
            if name in vars(each):
                return Method(each, name, vars(each)[name])
            self.reading.passed.add((each, name))
        raise RefusedError(f"has no inherited {name}")


def in_class(kind: type, name: str) -> Any:
    """Return an attribute of a class as it is stored."""
    for each in kind.__mro__:
        if name in vars(each):
            return vars(each)[name]
    return MISSING


def is_in(found: Any, known: Iterable[Any]) -> bool:
    return any(found is each for each in known)


def _is_function(found: Any) -> bool:
    """Return whether an object is a function whose meaning is known."""
    if type(found) is functools.partial:
        found = found.func
    return is_in(found, PURE) or function_called(found) is not None

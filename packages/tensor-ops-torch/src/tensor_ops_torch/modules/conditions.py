"""What has to hold for a module to compute what it was recognised as."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import nn

from tensor_ops_torch.modules.reading import Reading

__all__ = ["Conditions"]

_MISSING = object()


@dataclass(frozen=True)
class Conditions:
    """Attributes that keep their values, and functions of classes that stay the same.

    The globals that the functions use have to stay the same, too.

    Attributes
    ----------
    watched : tuple of (str, type, object)
        Attributes with the types and values that they have to have.
    functions : tuple of (type, str, str)
        Classes, names of their functions, and digests of these.
    """

    watched: tuple[tuple[str, type, Any], ...] = ()
    functions: tuple[tuple[type, str, str], ...] = ()

    @classmethod
    def of(cls, reading: Reading) -> Conditions:
        """Return the conditions under which a forward was read."""
        watched = [(name, _copy_partial(value)) for name, value in sorted(reading.watched.items())]
        functions = sorted(
            ((owner, name, _digest(function)) for owner, name, function in reading.functions),
            key=lambda each: (each[0].__qualname__, each[1]),
        )
        return cls(tuple((name, type(value), value) for name, value in watched), tuple(functions))

    @property
    def is_known(self) -> bool:
        """Whether the functions are still those that were read, as after loading a model."""
        return all(
            _digest(getattr(owner, name, None)) == digest for owner, name, digest in self.functions
        )

    def check(self) -> Callable[[nn.Module], bool]:
        """Return a function that says whether they hold for a module."""
        watched = self.watched
        functions: list[tuple[Any, ...]] = []
        for owner, name, _ in self.functions:
            function = getattr(owner, name)
            facts = function.__code__, function.__defaults__, _copy(function.__kwdefaults__)
            functions.append((owner, name, function, *facts))
        used = [
            (found.__globals__, name, found.__globals__[name])
            for _, _, found, code, _, _ in functions
            for name in code.co_names
            if name in found.__globals__
        ]
        called = frozenset(name for _, name, _ in self.functions) - {"forward"}

        def hold(module: nn.Module) -> bool:
            for name, kind, value in watched:
                held = getattr(module, name, _MISSING)
                if type(held) is not kind or (held != value and not _same_partial(held, value)):
                    return False
            if torch.compiler.is_compiling():
                return True  # the functions and globals are what the compiler reads
            for owner, name, found, code, defaults, keywords in functions:
                if (
                    found.__code__ is not code
                    or found.__defaults__ is not defaults
                    or found.__kwdefaults__ != keywords
                    or getattr(owner, name, None) is not found
                ):
                    return False
            for names, name, value in used:
                if names.get(name) is not value:
                    return False
            # A function of the instance would be called in the place of its class's.
            return not called or called.isdisjoint(vars(module))

        return hold


def _copy(keywords: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if keywords is None else dict(keywords)


def _copy_partial(value: Any) -> Any:
    """Return a partial that does not change with another, whose keywords can be written to."""
    if type(value) is not functools.partial:
        return value
    return functools.partial(value.func, *value.args, **value.keywords)


def _same_partial(found: Any, value: Any) -> bool:
    """Return whether two partials call the same; copies of one are not equal."""
    return type(found) is functools.partial and (
        (found.func, found.args, found.keywords) == (value.func, value.args, value.keywords)
    )


def _digest(function: Any) -> str:
    if type(function) is not FunctionType:
        return type(function).__name__
    code = function.__code__
    facts = (code.co_code, code.co_consts, code.co_names, code.co_varnames)
    defaults = function.__defaults__, function.__kwdefaults__
    return hashlib.sha256(repr((*facts, *defaults)).encode()).hexdigest()[:16]

"""Methods that the kernel has from other classes.

Tested by packages/tensor-ops-decode/tests/kernel/test_layers.py.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

__all__ = ["forward", "named_as_kernel"]

_Class = TypeVar("_Class", bound=type)
_Held = TypeVar("_Held")
_P = ParamSpec("_P")
_T = TypeVar("_T")


def named_as_kernel(owner: _Class) -> _Class:
    """Name the methods of a class as the kernel's: Python does in its errors of wrong arguments."""
    for name, method in vars(owner).items():
        if inspect.isfunction(method):
            method.__qualname__ = f"PersistentKernel.{name}"
    return owner


def forward(
    member: str, method: Callable[Concatenate[_Held, _P], _T]
) -> Callable[Concatenate[Any, _P], _T]:
    """Return a method of the kernel that is one of a member, with its signature and docstring."""

    @functools.wraps(method)
    def call(kernel: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return method(getattr(kernel, member), *args, **kwargs)

    return call

"""Methods of the kernel that are those of one of its members.

Tested by packages/tensor-ops-decode/tests/kernel/test_layers.py.
"""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

__all__ = ["forward"]

_Held = TypeVar("_Held")
_P = ParamSpec("_P")
_T = TypeVar("_T")


def forward(
    member: str, method: Callable[Concatenate[_Held, _P], _T]
) -> Callable[Concatenate[Any, _P], _T]:
    """Return a method of the kernel that is one of a member, with its signature and docstring."""
    # Python names a function by it in its own errors of wrong arguments.
    method.__qualname__ = f"PersistentKernel.{method.__name__}"

    @functools.wraps(method)
    def call(kernel: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return method(getattr(kernel, member), *args, **kwargs)

    return call

"""PyTorch itself; where it cannot be used, a stand-in whose every use is the error that says why.

What needs no PyTorch, as the choice of ONNX Runtime's providers, works without it.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tensor_ops import BackendUnavailableError

__all__ = ["INSTALL", "OLDEST", "is_usable", "needed_by", "require", "torch"]

OLDEST = "2.6"
INSTALL = f"pip install 'torch>={OLDEST}'"


class _Unusable(ModuleType):
    """A stand-in for PyTorch where it cannot be imported or is too old."""

    def __init__(self, why: str, cause: Exception | None = None) -> None:
        super().__init__("torch", why)
        self.__dict__.update(_why=why, _cause=cause)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python looks for in any module
            raise AttributeError(f"there is no PyTorch, and so no {name}")
        why, cause = self.__dict__["_why"], self.__dict__["_cause"]
        raise BackendUnavailableError(f"this needs PyTorch: {why}", "torch") from cause


def _import() -> ModuleType:
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            return _Unusable(
                f"torch is installed, but a module that it needs is not: {error}; "
                f"install that, or PyTorch with all it needs: {INSTALL}",
                error,
            )
        return _Unusable(f"torch is not installed; install it with: {INSTALL}", error)
    except Exception as error:  # whatever a broken installation does
        return _Unusable(
            f"importing torch failed: {type(error).__name__}: {error}; "
            f"install it anew: pip install --force-reinstall 'torch>={OLDEST}'",
            error,
        )
    version = getattr(torch, "__version__", "unknown")
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < tuple(map(int, OLDEST.split("."))):
        return _Unusable(
            f"version {version} is installed, expected {OLDEST} or newer; "
            f"install that: pip install -U 'torch>={OLDEST}'"
        )
    return torch


if TYPE_CHECKING:
    import torch
else:
    torch = _import()


def is_usable() -> bool:
    """Return whether PyTorch is there and new enough."""
    return not isinstance(torch, _Unusable)


def require() -> None:
    """Check that PyTorch can be used, or raise BackendUnavailableError, saying what to install."""
    if not is_usable():
        torch.version  # noqa: B018 - as any use of it


def needed_by(*names: str) -> None:
    """Have the import of what begins with these names say so where PyTorch cannot be used."""
    if not is_usable():
        sys.meta_path.insert(0, _Refusing(names))


class _Refusing:
    """A finder that finds nothing: asked for what needs PyTorch, it raises."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def find_spec(self, name: str, *_: Any) -> None:
        if name.startswith(self._names):
            require()

"""PyTorch itself, imported before anything else of this package: or the error that says why not."""

from __future__ import annotations

import re

from tensor_ops import BackendUnavailableError

__all__ = ["INSTALL", "OLDEST"]

OLDEST = "2.6"
INSTALL = f"pip install 'torch>={OLDEST}'"


def _unavailable(what: str, remedy: str) -> BackendUnavailableError:
    return BackendUnavailableError(f"tensor_ops_torch needs PyTorch: {what}; {remedy}", "torch")


try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise _unavailable(
            f"torch is installed, but a module that it needs is not: {error}",
            f"install that, or PyTorch with all it needs: {INSTALL}",
        ) from error
    raise _unavailable("torch is not installed", f"install it with: {INSTALL}") from error
except Exception as error:  # whatever a broken installation does
    raise _unavailable(
        f"importing torch failed: {type(error).__name__}: {error}",
        f"install it anew: pip install --force-reinstall 'torch>={OLDEST}'",
    ) from error

_version = tuple(map(int, re.findall(r"\d+", getattr(torch, "__version__", "0"))[:2]))
if _version < tuple(map(int, OLDEST.split("."))):
    raise _unavailable(
        f"version {getattr(torch, '__version__', 'unknown')} is installed, expected {OLDEST} or "
        "newer",
        f"install that: pip install -U 'torch>={OLDEST}'",
    )

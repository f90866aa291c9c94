"""What tensor_ops_devices holds, under the names that it had in this package.

``tensor_ops_torch.backends.nvidia`` is ``tensor_ops_devices.backends.nvidia``, the same module.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["FormerNames"]

_ROOMS = ("backends", "checkpoint", "devices", "hardware", "validation")
_FORMER = tuple(f"tensor_ops_torch.{room}" for room in _ROOMS)


class FormerNames:
    """A finder of these modules, and their loader, for ``sys.meta_path``."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> ModuleSpec | None:
        return ModuleSpec(name, FormerNames) if name.startswith(_FORMER) else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(_: ModuleSpec) -> None:
        """Have Python make an empty module, which `exec_module` replaces."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        # Whoever imports the module gets what is in this table afterwards.
        name = module.__name__.replace("tensor_ops_torch", "tensor_ops_devices", 1)
        sys.modules[module.__name__] = import_module(name)

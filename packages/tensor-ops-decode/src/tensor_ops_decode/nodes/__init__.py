"""The kinds of nodes, one file each."""

import pkgutil
from importlib import import_module

from tensor_ops_decode.kinds.kind import Kind

__all__ = ["KINDS"]

#: All kinds by name.
KINDS: dict[str, Kind] = {}

for _module in pkgutil.iter_modules(__path__):
    _kind = import_module(f"{__name__}.{_module.name}").KIND
    KINDS[_kind.name] = _kind

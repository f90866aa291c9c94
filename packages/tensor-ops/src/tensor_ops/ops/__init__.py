"""The ops, one file each. A new file here is a new op; nothing else lists them."""

import importlib
import pkgutil

from tensor_ops.op import OPS

__all__ = ["OPS"]

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")

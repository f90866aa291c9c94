"""The ops, two files each: a declaration and its kernels. Nothing else lists them."""

import importlib
import pkgutil

from tensor_ops_opencl.op import OPS

__all__ = ["OPS"]

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")

"""Small tensor operations of LLM inference, on the fastest backend that is there.

>>> import numpy as np
>>> import tensor_ops
>>> tensor_ops.silu(np.zeros(3, dtype=np.float32))
array([0., 0., 0.], dtype=float32)
"""

# Before what takes time to import, so that Ctrl-C ends our own command there without a traceback.
from tensor_ops import interrupts as _interrupts  # noqa: F401  # isort: skip
from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING, Any

from tensor_ops.command_name import is_own_command as _is_own_command
from tensor_ops.config import state as _state
from tensor_ops.errors import (
    BackendError,
    BackendFallbackWarning,
    BackendUnavailableError,
    ConfigError,
    ConfigWarning,
    TensorOpsError,
)
from tensor_ops.explanation import Explanation, explain
from tensor_ops.ops import OPS as _OPS
from tensor_ops.registry import (
    get_available_backends,
    get_backend,
    get_backend_info,
    get_default_backend,
    is_backend_available,
    list_backends,
    list_ops,
    reload_config,
    set_default_backend,
    use_backend,
)

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "BackendFallbackWarning",
    "BackendUnavailableError",
    "ConfigError",
    "ConfigWarning",
    "Explanation",
    "TensorOpsError",
    "explain",
    "get_available_backends",
    "get_backend",
    "get_backend_info",
    "get_default_backend",
    "is_backend_available",
    "list_backends",
    "list_ops",
    "reload_config",
    "set_default_backend",
    "use_backend",
]

# By name: the package that provides it, and the extra that installs that.
_ELSEWHERE = {"PersistentKernel": ("tensor_ops_decode", "decode")}

for _name in _OPS:
    globals()[_name] = _OPS[_name].public
    __all__ += [_name]  # noqa: PLE0604

if TYPE_CHECKING:  # in a wheel, a stub that the build makes names the ops: see hatch_build.py

    def __getattr__(name: str) -> Any: ...

else:

    def __getattr__(name):
        """Return what another package of ours provides under this name, imported when needed."""
        if name not in _ELSEWHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        package, extra = _ELSEWHERE[name]
        try:
            return getattr(_import_module(package), name)
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            from tensor_ops.backends import installed

            raise ImportError(
                f"tensor_ops.{name} needs the package {package}, which is not installed: "
                f"{installed.how_to_install(extra)}"
            ) from error


def __dir__() -> list[str]:
    # Names that would fail are left out: pydoc and others look at every name.
    elsewhere = [name for name, (package, _) in _ELSEWHERE.items() if _find_spec(package)]
    return [*__all__, *elsewhere, "__version__"]


# A forced backend that is missing, or a bad configuration, ends the import here. The package's
# own command goes on: it is what shows and mends the configuration.
if not _is_own_command():
    _state.start()

"""The exceptions and the warnings that tensor_ops raises for its own reasons.

Bad arguments of an op are plain ``TypeError`` and ``ValueError``, as in NumPy.
"""

import sys
import warnings
from types import FrameType

__all__ = [
    "BackendError",
    "BackendFallbackWarning",
    "BackendUnavailableError",
    "ConfigError",
    "ConfigWarning",
    "TensorOpsError",
    "warn_caller",
]

# The packages of this repository, and modules that call functions for their callers, as those of a
# cached property are.
_OURS = (
    *("tensor_ops", "tensor_ops_cpp", "tensor_ops_cuda", "tensor_ops_decode"),
    *("tensor_ops_devices", "tensor_ops_opencl", "tensor_ops_torch"),
)
_BETWEEN = ("contextlib", "copy", "functools", "torch")


class TensorOpsError(Exception):
    """Base class of every error that is about tensor_ops itself."""


class BackendError(TensorOpsError, RuntimeError):
    """A backend cannot do what was asked of it."""


class BackendUnavailableError(BackendError, ImportError):
    """A backend that was asked for by name is not installed or finds no usable device.

    Attributes
    ----------
    name : str
        The backend.
    """

    name: str

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (str(self), self.name)


class ConfigError(TensorOpsError, ValueError):
    """A configuration file, environment variable or backend name is not valid."""


class BackendFallbackWarning(RuntimeWarning):
    """The preferred backend is unavailable and another one runs instead."""


class ConfigWarning(RuntimeWarning):
    """A part of the configuration has no effect.

    That is a user's file out of this process's reach, or a variable that nothing reads.
    """


def warn_caller(message: str, category: type[Warning], package: str = "tensor_ops") -> None:
    """Warn at the line of the first caller outside a package and those of this repository.

    Frames of libraries that call a function on behalf of their caller are passed over too.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_within(frame, (package, *_OURS, *_BETWEEN)):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_within(frame: FrameType, packages: tuple[str, ...]) -> bool:
    # Code that exec() runs may be in a namespace without __name__.
    return str(frame.f_globals.get("__name__")).partition(".")[0] in packages

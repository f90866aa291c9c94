"""The exceptions and the warning that tensor_ops raises for its own reasons.

Bad arguments of an op are plain ``TypeError`` and ``ValueError``, as in NumPy.
"""

__all__ = [
    "BackendError",
    "BackendFallbackWarning",
    "BackendUnavailableError",
    "ConfigError",
    "TensorOpsError",
]


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

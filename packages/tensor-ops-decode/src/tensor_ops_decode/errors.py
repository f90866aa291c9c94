"""The exceptions that this package adds to those of tensor_ops."""

from tensor_ops import TensorOpsError

__all__ = ["CapacityError", "ProgramError"]


class ProgramError(TensorOpsError, ValueError):
    """A program, or a node that is added to one, is not valid."""


class CapacityError(TensorOpsError, RuntimeError):
    """A step needs more positions or pages than a kernel has; nothing was written.

    Attributes
    ----------
    request : int
        The number of the request that does not fit.
    """

    request: int

    def __init__(self, message: str, request: int) -> None:
        super().__init__(message)
        self.request = request

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (str(self), self.request)

"""The exceptions that this package adds to those of tensor_ops."""

from tensor_ops import TensorOpsError

__all__ = ["ProgramError"]


class ProgramError(TensorOpsError, ValueError):
    """A program, or a node that is added to one, is not valid."""

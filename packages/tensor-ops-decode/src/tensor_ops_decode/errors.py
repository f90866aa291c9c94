"""The exceptions that this package adds to those of tensor_ops."""

from tensor_ops import TensorOpsError
from tensor_ops_decode.completion import Completion

__all__ = ["CapacityError", "LogitsError", "ProgramError", "RankError"]


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


class LogitsError(TensorOpsError, ArithmeticError):
    """The logits of a request are NaN, or all minus infinity, so that they choose no token.

    The request has ended, with the tokens that it had; the others have their tokens, and go on.

    Attributes
    ----------
    request : int
        The number of the request.
    completions : tuple of Completion
        The answers to all prompts of `Model.generate`, which goes on with the others. The answer to
        a prompt that failed ends early, with the ``finish_reason`` ``"error"``. Empty elsewhere.
    """

    request: int
    completions: tuple[Completion, ...]

    def __init__(
        self, message: str, request: int, completions: tuple[Completion, ...] = ()
    ) -> None:
        super().__init__(message)
        self.request = request
        self.completions = completions

    def __reduce__(self) -> tuple[type, tuple[str, int, tuple[Completion, ...]]]:
        return type(self), (str(self), self.request, self.completions)


class RankError(TensorOpsError, RuntimeError):
    """Another rank has ended, has failed, does not come, or runs another step than this one.

    Attributes
    ----------
    rank : int or None
        The number of that rank, if it is known.
    """

    rank: int | None

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank

    def __reduce__(self) -> tuple[type, tuple[str, int | None]]:
        return type(self), (str(self), self.rank)

"""What says which tokens may follow in a request."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tensor_ops_decode.kinds.kind import Array

__all__ = ["TokenConstraint"]


@runtime_checkable
class TokenConstraint(Protocol):
    """Which tokens may follow in one request; the tokens that it has generated are given.

    They are those of the call before, and perhaps some more. A call may be interrupted anywhere,
    and is repeated then.
    """

    def allows(self, generated: Sequence[int], token: int) -> bool:
        """Return whether a token may be the next one."""

    def allowed(self, generated: Sequence[int]) -> Array:
        """Return a bool for each token of the vocabulary: whether it may be the next one."""

    def is_complete(self, generated: Sequence[int]) -> bool:
        """Return whether nothing may follow any more, so that the request has ended."""

    def forced(self, generated: Sequence[int], most: int) -> list[int]:
        """Return the next tokens, `most` at most, each of which is the only one that is allowed.

        There may be fewer than that, or none. A step computes them together, as those of a prompt.
        """

    def problem(self, generated: Sequence[int]) -> str:
        """Return why no token may follow; an empty string if one may."""

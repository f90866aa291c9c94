"""The ranks that share a kernel's model, whatever carries their messages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.ranks.group import RankGroup

__all__ = ["ONE_RANK", "Communicator", "Facts", "OneRank", "PlannedRank"]

#: What must be the same on all ranks: by its name in messages, a digest or the value itself.
Facts = Mapping[str, str]


class Communicator(RankGroup):
    """One rank of a kernel's. All ranks call the same methods in the same order.

    The `name` says in words what carries the messages. Of the ranks, `num_here` are on this
    machine, and `num_sharing` of these, with this one, may run on the same processors.
    """

    name: str
    num_here: int
    num_sharing: int

    @abstractmethod
    def least_of(self, plan: Callable[[int], tuple[int, ...]]) -> tuple[int, ...]:
        """Return the least numbers that any rank has planned with.

        `plan` takes a rank and returns its numbers. It may fail on one rank alone, which is a
        RankError on the others.
        """

    @abstractmethod
    def compiled(self, facts: Callable[[], Facts], compile_program: Callable[[], Any]) -> Any:
        """Return an executable whose steps all ranks run together.

        `facts` returns what must be the same on all ranks, and `compile_program` the executable of
        this one. Either may fail on one rank alone. That is a RankError on the others, and so are
        facts that differ.
        """

    @abstractmethod
    def least(self, number: int, step: Callable[[], str] = str) -> int:
        """Return the least of what the ranks give, who must be about to run the same step.

        No number is above 2**53. `step` returns what the step is: it is a RankError if that of a
        rank is another one.
        """

    def told(self, text: str | None) -> str | None:
        """Return what rank 0 gives, for which the others wait as long as it takes."""
        return text

    def end_all(self, error: BaseException) -> None:
        """End the other ranks, since this one ends by an error."""

    def close(self) -> None:
        """Leave the other ranks, for whom the next step is an error."""


class OneRank(Communicator):
    """The only rank of a kernel, which runs the whole model."""

    name, rank, world_size, num_here, num_sharing = "one rank", 0, 1, 1, 1

    def exchange(self, send: Array, receive: Array) -> None:
        """Copy the vector."""
        receive[0] = send

    def while_waiting(self, seconds: float, ranks: tuple[int, ...]) -> None:
        """Do nothing, as there is no other rank to wait for."""

    def least_of(self, plan: Callable[[int], tuple[int, ...]]) -> tuple[int, ...]:
        """Return what is planned."""
        return plan(0)

    def compiled(self, facts: Callable[[], Facts], compile_program: Callable[[], Any]) -> Any:
        """Return the executable."""
        facts()
        return compile_program()

    def least(self, number: int, step: Callable[[], str] = str) -> int:
        """Return the number."""
        return number


ONE_RANK = OneRank()


class PlannedRank(RankGroup):
    """A rank whose memory is planned, and which runs no steps."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size

    def exchange(self, send: Array, receive: Array) -> None:
        """Raise an error."""
        raise NotImplementedError

    def while_waiting(self, seconds: float, ranks: tuple[int, ...]) -> None:
        """Raise an error."""
        raise NotImplementedError

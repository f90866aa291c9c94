"""What a kernel asks of the ranks that share its model, whatever carries their messages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tensor_ops_decode.ranks.group import RankGroup

__all__ = ["Communicator", "Facts"]

#: What must be the same on all ranks: by its name in messages, a digest or the value itself.
Facts = Mapping[str, str]


class Communicator(RankGroup):
    """One rank of a kernel's.

    All ranks call the same methods in the same order.

    Attributes
    ----------
    name : str
        What carries the messages, in words.
    num_here : int
        How many of the ranks are on this machine.
    """

    name: str
    num_here: int

    @abstractmethod
    def least_of(self, plan: Callable[[int], tuple[int, ...]]) -> tuple[int, ...]:
        """Return the least numbers that any rank has planned with.

        Parameters
        ----------
        plan : callable
            Takes a rank, and returns its numbers. It may fail on one rank alone.

        Raises
        ------
        RankError
            If it has failed on another rank.
        """

    @abstractmethod
    def compiled(self, facts: Facts, compile_program: Callable[[], Any]) -> Any:
        """Return an executable whose steps all ranks run together.

        Parameters
        ----------
        facts : mapping of str to str
        compile_program : callable
            Returns the executable of this rank. It may fail on one rank alone.

        Raises
        ------
        RankError
            If the facts of a rank are others, or it has failed there.
        """

    @abstractmethod
    def least(self, number: int, step: str = "") -> int:
        """Return the least of what the ranks give, who must be about to run the same step.

        Parameters
        ----------
        number : int
            At most 2**53.
        step : str
            What the step is.

        Raises
        ------
        RankError
            If a rank is about to run another step.
        """

    def in_step(self) -> AbstractContextManager[None]:
        """Return a context for what all ranks do together: the others learn of what it raises."""
        return nullcontext()

    def close(self) -> None:
        """Leave the other ranks, for whom the next step is an error."""

"""The ranks of one process: the threads of their steps, and where these meet."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Protocol

import numpy as np

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.ranks.agreement import check_alike
from tensor_ops_decode.ranks.communicator import Facts
from tensor_ops_decode.ranks.deadline import deadline_seconds, too_late
from tensor_ops_decode.ranks.shared_exchange import SharedExchange

__all__ = ["Team", "joined_team"]

_ALIGNMENT = 64


class Member(Protocol):
    """A rank, as its team knows it."""

    rank: int
    world_size: int
    facts: Facts | None
    executable: Any


class Team:
    """The ranks of one model in this process; it holds none of them.

    They find each other by the `model`. The `lock` is held by the one that steps all, and the
    `exchanges` are those of each rank in the step that runs.
    """

    def __init__(self, world_size: int, model: Hashable) -> None:
        self.world_size, self.model = world_size, model
        self.lock = threading.RLock()
        self.deadline = deadline_seconds()
        self.exchanges: list[SharedExchange] = []
        self._error: RankError | None = None  # of a rank that has failed in the step that runs
        self._has_stopped = False
        self._members: list[Callable[[], Member | None] | None] = [None] * world_size
        self._windows: list[Array] = []
        self._threads: ThreadPoolExecutor | None = None

    def lacks(self, rank: int) -> bool:
        """Return whether a rank may join, which needs that all who have joined are there."""
        joined = [each for each in self._members if each is not None]
        return self._members[rank] is None and all(each() is not None for each in joined)

    def join(self, member: Member) -> None:
        """Take a rank in."""
        self._members[member.rank] = weakref.ref(member)

    def leave(self, member: Member) -> None:
        """Forget a rank, without which there are no more steps."""
        self._members[member.rank] = _nobody
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    def missing(self) -> list[str]:
        """Return what is missing before all ranks can run, in words."""
        found = []
        for rank, each in enumerate(self._members):
            member = None if each is None else each()
            if each is None or (member is not None and member.executable is None):
                found.append(f"rank {rank} is not compiled")
            elif member is None:
                found.append(f"rank {rank} is closed")
        return found

    def members(self) -> list[Any]:
        """Return all ranks in their order; raise a RankError if one is missing."""
        missing = self.missing()
        if missing:
            raise RankError(
                f"a step needs all {self.world_size} ranks of this process: {', '.join(missing)}; "
                "make a kernel for each mpi_rank, and compile() each, before the first step"
            )
        return [member for each in self._members if each and (member := each()) is not None]

    def check_alike(self) -> None:
        """Raise a RankError unless the ranks run the same."""
        check_alike([each.facts for each in self.members()])

    def window(self, number: int, num_bytes: int) -> Array:
        """Return the memory of the executables that are the ranks' first, second, ..."""
        with self.lock:
            if number == len(self._windows):
                whole = np.zeros(num_bytes + _ALIGNMENT, np.uint8)
                start = -whole.ctypes.data % _ALIGNMENT
                self._windows.append(whole[start : start + num_bytes])
            found = self._windows[number]
        if len(found) != num_bytes:
            raise RankError(f"one rank shares {len(found)} bytes, and another one {num_bytes}")
        return found

    def at_once(self, function: Callable[[Any], Any], caller: Member) -> list[Any]:
        """Call a function for all ranks at the same time, for the caller in this thread.

        Returns what it has returned for each rank, or the error that it has raised.
        """
        if self._has_stopped:
            raise RankError(
                "the ranks have stopped in the middle of a step, which cannot be taken up again; "
                "close the kernels, and make new ones"
            )
        members = self.members()
        self.check_alike()
        self._error, size = None, self.world_size
        memory = np.zeros(SharedExchange.num_bytes(size), np.uint8)
        self.exchanges = [
            SharedExchange(memory, rank, size, self.while_waiting) for rank in range(size)
        ]

        def outcome(member: Member) -> Any:
            try:
                return function(member)
            except BaseException as error:  # of any kind, since the others wait for this rank
                self._give_up(member.rank, error)
                return error

        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.world_size - 1, "rank")
        others = [each for each in members if each is not caller]
        futures = {each.rank: self._threads.submit(outcome, each) for each in others}
        own = outcome(caller)
        try:
            found = [futures[each.rank].result() if each in others else own for each in members]
        except BaseException as error:  # Ctrl-C: the others must not stay in a step
            self._has_stopped = True
            self._give_up(caller.rank, error)
            wait(futures.values())
            raise
        kinds = {type(each) if isinstance(each, BaseException) else None for each in found}
        self._has_stopped = len(kinds) > 1  # what all raise alike was raised before the step
        return found

    def while_waiting(self, seconds: float, ranks: tuple[int, ...]) -> None:
        """Raise an error if another rank has failed, or the deadline is over."""
        if self._error is not None:
            raise RankError(str(self._error), self._error.rank)
        if seconds > self.deadline:
            raise too_late(self.deadline, ranks)

    def _give_up(self, rank: int, error: BaseException) -> None:
        """Let the ranks that wait raise an error, since this one has failed."""
        if self._error is None:
            text = str(error) or type(error).__name__
            self._error = RankError(f"rank {rank} has failed in this step: {text}", rank)


def joined_team(member: Member, model: Hashable) -> Team:
    """Return the oldest team of a model that lacks this rank, or a new one, with the rank in it."""
    size = member.world_size
    with _lock:
        there = [team for each in _teams if (team := each()) is not None]
        of_model = [each for each in there if (each.world_size, each.model) == (size, model)]
        team = next((each for each in of_model if each.lacks(member.rank)), None)
        if team is None:
            team = Team(size, model)
            there.append(team)
        team.join(member)
        _teams[:] = map(weakref.ref, there)
        return team


_teams: list[weakref.ref[Team]] = []
_lock = threading.Lock()


def _nobody() -> None:
    """Stand for a rank that has left."""

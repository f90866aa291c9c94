"""Ranks that are processes: what they do alike, whatever carries their values."""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.ranks.agreement import check_alike
from tensor_ops_decode.ranks.communicator import Communicator, Facts
from tensor_ops_decode.ranks.deadline import deadline_seconds, too_late
from tensor_ops_decode.ranks.faults import Faults
from tensor_ops_decode.ranks.liveness import Process, this_process

__all__ = ["ProcessRanks"]

# A rank that waits tries so often before it lets other processes run between two tries, and then
# so often before it sleeps.
_SPINS, _YIELDS = 200, 2000
_SLEEP = 1e-4
_CHECK_EVERY = 0.05
# What a rank gives that comes to a window, in place of a size.
_AT_WINDOW = -1.0
# For how long a rank that gives up leaves it to the first one to tell why.
_SECONDS_TO_TELL = 0.5


class _NotAllCameError(RankError):
    """A rank does not come to where this one is, as it has failed."""


class ProcessRanks(Communicator):
    """A rank among several processes.

    The `processes` are those of all ranks, by their numbers, and `faults` is what ends all of them.
    A subclass has `exchange` and `_shared_memory`, and calls `meet` once `exchange` works.
    """

    processes: list[Process]
    faults: Faults | None = None

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size, self.num_here, self.num_sharing = rank, world_size, 1, 1
        self.others = [other for other in range(world_size) if other != rank]
        self.processes = []
        self._deadline = deadline_seconds()
        self._waits_for_ever = False

    def meet(self) -> None:
        """Learn of the processes of the other ranks."""
        own = this_process()
        self.processes = [Process.from_bytes(each) for each in self.gathered(own.to_bytes())]
        self.num_here = sum(each.machine == own.machine for each in self.processes)
        # A launcher may have bound each to processors of its own.
        self.num_sharing = sum(map(own.shares_processors, self.processes))

    @property
    def rank_here(self) -> int:
        """The number of this rank among those of its machine."""
        own = self.processes[self.rank].machine
        return sum(each.machine == own for each in self.processes[: self.rank])

    def gathered(self, data: bytes) -> list[bytes]:
        """Return the bytes that all ranks give."""
        sizes = self._numbers(len(data))
        while _AT_WINDOW in sizes:  # a rank learns there that this one does not come
            sizes = self._numbers(len(data))
        most = int(max(sizes))
        words = np.zeros(max(1, -(-most // 8)))
        words.view(np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
        received = np.empty((self.world_size, len(words)))
        self.exchange(words, received)
        rows = received.view(np.uint8)
        return [row[: int(size)].tobytes() for row, size in zip(rows, sizes, strict=True)]

    def window(self, num_bytes: int) -> Array | None:
        """Return memory that all ranks share, if all are on one machine."""
        if self.num_here < self.world_size:
            return None
        # A rank that has failed before does not come, and nothing that waits in MPI can be told.
        if any(each != _AT_WINDOW for each in self._numbers(_AT_WINDOW)):
            raise _NotAllCameError("another rank has failed")
        return self._shared_memory(num_bytes)

    @abstractmethod
    def _shared_memory(self, num_bytes: int) -> Array | None:
        """Return memory that all ranks share, all of them on one machine; None if there is none."""

    def _numbers(self, number: float) -> list[float]:
        """Return the numbers that all ranks give."""
        received = np.empty((self.world_size, 1))
        self.exchange(np.array([float(number)]), received)
        found: list[float] = received[:, 0].tolist()
        return found

    def told(self, text: str | None) -> str | None:
        """Return what rank 0 gives, for which the others wait as long as it takes."""
        self._waits_for_ever = True
        try:
            given = self.gathered(json.dumps(text if self.rank == 0 else None).encode())
        finally:
            self._waits_for_ever = False
        found: str | None = json.loads(given[0])
        return found

    def least_of(self, plan: Callable[[int], tuple[int, ...]]) -> tuple[int, ...]:
        """Return the least numbers that any rank has planned with, each for itself."""
        plans = self._together("the plan of its memory", lambda: plan(self.rank))
        return tuple(map(min, zip(*plans, strict=True)))

    def compiled(self, facts: Callable[[], Facts], compile_program: Callable[[], Any]) -> Any:
        """Return the executable of this rank, once all have theirs."""
        check_alike(self._together("its program", lambda: dict(facts())))
        executables = []
        self._together("compiling", lambda: executables.append(compile_program()))
        return executables[0]

    def least(self, number: int, step: Callable[[], str] = str) -> int:
        """Return the least number of all ranks."""
        received = np.empty((self.world_size, 2))
        self.exchange(np.array([float(number), float(crc32(step().encode()))]), received)
        digests = received[:, 1].tolist()
        usual = max(dict.fromkeys(digests), key=digests.count)
        for rank, digest in enumerate(digests):
            if digest != usual:
                raise RankError(
                    f"rank {rank} is about to run another step than the others: give all ranks "
                    "the same requests and calls, in the same order",
                    rank,
                )
        return int(received[:, 0].min())

    def while_waiting(self, seconds: float, ranks: tuple[int, ...]) -> None:
        """Raise an error if a rank has ended, or the deadline is over."""
        if ended := self.ended(ranks):
            raise ended
        if seconds > self._deadline and not self._waits_for_ever:
            raise self.given_up(ranks)

    def ended(self, ranks: Sequence[int]) -> RankError | None:
        """Return the error that one of some other ranks has ended, if one has."""
        for rank in ranks:
            process = self.processes[rank] if self.processes else None
            if rank != self.rank and process is not None and process.has_ended:
                return RankError(f"rank {rank}, the process {process.number}, has ended", rank)
        return None

    def wait(self, missing: Callable[[], Sequence[int]]) -> None:
        """Wait until no ranks are missing."""
        start, next_check, tries = time.perf_counter(), _CHECK_EVERY, 0
        while ranks := missing():
            tries += 1
            if tries < _SPINS:
                continue
            time.sleep(0 if tries < _YIELDS else _SLEEP)
            seconds = time.perf_counter() - start
            if seconds > next_check:
                next_check = seconds + _CHECK_EVERY
                self.while_waiting(seconds, tuple(ranks))

    def end_all(self, error: BaseException) -> None:
        """End all ranks, since this one ends by an error; it may be the same on each."""
        if self.faults is not None:
            self.faults.end_all(error)

    def say(self, text: str) -> None:
        """Let the ranks that wait for this one know why it does not come, where that can be."""

    def given_up(self, ranks: Sequence[int]) -> RankError:
        """Return the error that ranks are too late, once those of this machine are killed."""
        text, late = str(too_late(self._deadline, ranks)), []
        for rank in ranks:
            process = self.processes[rank] if self.processes else None
            if rank != self.rank and process is not None and process.is_here:
                state = "was stopped by a signal" if process.is_stopped else "did not go on"
                text += f"; its process {process.number} {state}, and is killed"
                late.append(process)
        if self.faults is not None:  # before the launcher ends this process too
            if self.rank == min({*range(self.world_size)} - {*ranks}, default=self.rank):
                self.faults.tell(text)
            else:
                time.sleep(_SECONDS_TO_TELL)
        for process in late:
            process.kill()
        return RankError(text, *ranks[:1])

    def _together(self, what: str, function: Callable[[], Any]) -> list[Any]:
        """Return what a function returns on each rank, or raise an error on all if one fails."""
        failure: Exception | None = None
        try:
            outcome = {"value": function()}
        except _NotAllCameError:
            outcome = {}
        except Exception as error:  # it is raised below, when the others know
            failure, outcome = error, {"error": f"{type(error).__name__}: {error}"}
        outcomes = [json.loads(each) for each in self.gathered(json.dumps(outcome).encode())]
        if failure is not None:
            raise failure
        for rank, each in enumerate(outcomes):
            if "error" in each:
                raise RankError(f"rank {rank} failed in {what}: {each['error']}", rank)
        return [each["value"] for each in outcomes]

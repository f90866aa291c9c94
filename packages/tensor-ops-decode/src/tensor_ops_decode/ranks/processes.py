"""Ranks that are processes: what they do alike, whatever carries their values."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.ranks.agreement import check_alike
from tensor_ops_decode.ranks.communicator import Communicator, Facts
from tensor_ops_decode.ranks.deadline import deadline_seconds, too_late, wait
from tensor_ops_decode.ranks.faults import Faults
from tensor_ops_decode.ranks.liveness import Process, process_of
from tensor_ops_decode.ranks.mapped_window import mapped_window
from tensor_ops_decode.ranks.shared_exchange import SharedExchange

__all__ = ["ProcessRanks"]


class _FailedElsewhereError(RankError):
    """Another rank has failed, as all ranks know."""


class ProcessRanks(Communicator):
    """A rank among several processes, which share memory if all are on one machine.

    The `processes` are those of all ranks, by their numbers, and `faults` is what ends all of them,
    by `abort`. A subclass has `_carry`, which works before it calls this constructor.
    """

    faults: Faults | None = None

    def __init__(self, rank: int, world_size: int, abort: Callable[[], None]) -> None:
        self.rank, self.world_size, self.num_here, self.num_sharing = rank, world_size, 1, 1
        self.others = [other for other in range(world_size) if other != rank]
        self.processes: list[Process] = []
        self._shared: SharedExchange | None = None
        self._deadline = deadline_seconds()
        self._waits_for_ever = False
        if world_size == 1:
            return
        own = process_of(os.getpid())
        self.processes = [Process(*each) for each in self.values(own)]
        self.num_here = sum(each.machine == own.machine for each in self.processes)
        # A launcher may have bound each to processors of its own.
        self.num_sharing = sum(map(own.shares_processors, self.processes))
        memory = self.window(SharedExchange.num_bytes(world_size))
        if memory is not None:
            self._shared = SharedExchange(memory, rank, world_size, self.while_waiting)
        self.faults = Faults(self, abort)

    @property
    def rank_here(self) -> int:
        """The number of this rank among those of its machine."""
        own = self.processes[self.rank].machine
        return sum(each.machine == own for each in self.processes[: self.rank])

    def exchange(self, send: Array, receive: Array) -> None:
        """Give a vector to all ranks, and get those of all."""
        if self._shared is not None:
            self._shared.exchange(send, receive)
        else:
            self._carry(send, receive)

    @abstractmethod
    def _carry(self, send: Array, receive: Array) -> None:
        """Exchange vectors where ranks share no memory; `wait` for them."""

    def window(self, num_bytes: int) -> Array | None:
        """Return memory that all ranks share, if all are on one machine."""
        if self.num_here < self.world_size:
            return None
        return mapped_window(num_bytes, self.rank, self.values)

    def told(self, text: str | None) -> str | None:
        """Return what rank 0 gives, for which the others wait as long as it takes."""
        self._waits_for_ever = True
        try:
            found: str | None = self.values(text if self.rank == 0 else None)[0]
            return found
        finally:
            self._waits_for_ever = False

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
        """Raise an error if a rank has left or ended, or the deadline is over."""
        if self._shared is not None:
            self._shared.check(ranks)
        for rank in ranks:
            process = self.processes[rank] if self.processes else None
            if rank != self.rank and process is not None and process.has_ended:
                raise RankError(f"rank {rank}, the process {process.number}, has ended", rank)
        if seconds > self._deadline and not self._waits_for_ever:
            raise self._given_up(ranks)

    def wait(self, missing: Callable[[], Sequence[int]]) -> None:
        """Wait until no ranks are missing."""
        wait(missing, self.while_waiting)

    def leave(self) -> None:
        """Let the ranks that wait for this one know that it does not come, where that can be."""
        if self._shared is not None:
            self._shared.leave()

    def end_all(self, error: BaseException) -> None:
        """End all ranks, since this one ends by an error; it may be the same on each."""
        if self.faults is not None:
            self.faults.end_all(error)

    def _given_up(self, ranks: Sequence[int]) -> RankError:
        """Return the error that ranks are too late, once those of this machine are killed."""
        text, late = str(too_late(self._deadline, ranks)), []
        for rank in ranks:
            process = self.processes[rank] if self.processes else None
            if rank != self.rank and process is not None and process.is_here:
                state = "was stopped by a signal" if process.is_stopped else "did not go on"
                text += f"; its process {process.number} {state}, and is killed"
                late.append(process)
        if self.faults is not None:  # before the launcher ends this process too
            self.faults.tell_of(ranks, text)
        for process in late:
            process.kill()
        return RankError(text, *ranks[:1])

    def _together(self, what: str, function: Callable[[], Any]) -> list[Any]:
        """Return what a function returns on each rank, or raise an error on all if one fails."""
        try:
            value = function()
        except _FailedElsewhereError:
            raise
        except Exception as error:
            text = f"rank {self.rank} failed in {what}: {type(error).__name__}: {error}"
            self._gathered({"error": text})
            raise
        return self.values(value)

    def values(self, value: Any) -> list[Any]:
        """Return what all ranks give, unless one gives an error instead."""
        found = self._gathered({"value": value})
        for rank, each in enumerate(found):
            if "error" in each:
                raise _FailedElsewhereError(each["error"], rank)
        return [each["value"] for each in found]

    def _gathered(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what all ranks give, which is written as JSON."""
        data = np.frombuffer(json.dumps(given).encode(), np.uint8)
        sizes = np.empty((self.world_size, 1))
        self.exchange(np.array([float(len(data))]), sizes)
        words = np.zeros(-(-int(sizes.max()) // 8))
        words.view(np.uint8)[: len(data)] = data
        received = np.empty((self.world_size, len(words)))
        self.exchange(words, received)
        rows = zip(received.view(np.uint8), sizes[:, 0].tolist(), strict=True)
        return [json.loads(row[: int(size)].tobytes()) for row, size in rows]

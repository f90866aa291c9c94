"""How ranks exchange vectors in memory that they share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.ranks.deadline import wait

__all__ = ["SharedExchange"]

_CHUNK = 1 << 18  # bytes of a vector that are exchanged at once
_COUNTERS = 64  # bytes of what one rank counts: a line of the cache is written by one


class SharedExchange:
    """Memory in which every rank has a place for its next part of a vector.

    A rank writes a part, then its number; the others read it once they see the number. There are
    two places, since a rank is at most one part ahead of another one: it has seen the number of all
    others before it goes on. The memory is zeros, as many as `num_bytes` says, and `while_waiting`
    is that of `RankGroup`.
    """

    def __init__(
        self,
        memory: Array,
        rank: int,
        world_size: int,
        while_waiting: Callable[[float, tuple[int, ...]], None],
    ) -> None:
        self._rank, self._while_waiting = rank, while_waiting
        rows = memory.reshape(world_size, -1)
        counters = rows[:, :_COUNTERS].view(np.int64)
        self._numbers, self._sizes, self._left = counters[:, 0], counters[:, 1:3], counters[:, 3]
        self._data = rows[:, -2 * _CHUNK :].reshape(world_size, 2, _CHUNK)
        self._number, self._lock = 0, threading.Lock()

    @staticmethod
    def num_bytes(world_size: int) -> int:
        """Return the size of the memory."""
        return world_size * (_COUNTERS + 2 * _CHUNK)

    def exchange(self, send: Array, receive: Array) -> None:
        """Give a vector to all ranks, and get those of all."""
        sent, received = send.view(np.uint8), receive.view(np.uint8)
        for start in range(0, len(sent), _CHUNK):
            self._exchange(sent[start : start + _CHUNK], received[:, start : start + _CHUNK])

    def _exchange(self, send: Array, receive: Array) -> None:
        self._number = number = self._number + 1
        place, size = number % 2, len(send)
        self._data[self._rank, place, :size] = send
        self._sizes[self._rank, place] = size
        self._synchronize()
        self._numbers[self._rank] = number
        numbers = self._numbers
        if not (numbers >= number).all():
            wait(lambda: np.flatnonzero(numbers < number).tolist(), self._while_waiting)
        self._synchronize()
        for rank, other in enumerate(self._sizes[:, place].tolist()):
            if other != size:
                raise RankError(
                    f"rank {rank} gives {other} bytes where rank {self._rank} gives {size}: give "
                    "all ranks the same requests and calls, in the same order",
                    rank,
                )
        receive[:] = self._data[:, place, :size]

    def _synchronize(self) -> None:
        """Order what was read and written before it and after it, on any processor.

        What is before cannot come after the first release, nor what is after before the second
        acquisition.
        """
        for _ in range(2):
            with self._lock:
                pass

    def leave(self) -> None:
        """Let the ranks that wait for this one know that it does not come."""
        self._left[self._rank] = 1

    def check(self, ranks: Sequence[int]) -> None:
        """Raise a RankError if one of some ranks has left."""
        for rank in ranks:
            if rank != self._rank and self._left[rank]:
                raise RankError(f"rank {rank} has ended, while others go on", rank)

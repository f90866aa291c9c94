"""How processes exchange vectors in memory that they share, and tell each other why they end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.kinds.kind import Array

__all__ = ["SharedExchange"]

_CHUNK = 1 << 18  # bytes of a vector that are exchanged at once
_TEXT = 1000  # bytes of why a rank ends
_COUNTERS = 64  # bytes of what one rank counts: a line of the cache is written by one

Wait = Callable[[Callable[[], Sequence[int]]], None]


class SharedExchange:
    """Memory in which every rank has a place for its next part of a vector.

    A rank writes a part, then its number; the others read it once they see the number. There are
    two places, since a rank is at most one part ahead of another one: it has seen the number of all
    others before it goes on. The memory is zeros, as many as `num_bytes` says, and `synchronize`
    orders what was read and written before it and after it.
    """

    def __init__(
        self, memory: Array, rank: int, world_size: int, synchronize: Callable[[], None]
    ) -> None:
        self._rank, self._synchronize = rank, synchronize
        rows = memory.reshape(world_size, -1)
        counters = rows[:, :_COUNTERS].view(np.int64)
        self._numbers, self._sizes = counters[:, 0], counters[:, 1:3]
        self._texts = rows[:, _COUNTERS : _COUNTERS + _TEXT]
        self._data = rows[:, -2 * _CHUNK :].reshape(world_size, 2, _CHUNK)
        self._number = 0

    @staticmethod
    def num_bytes(world_size: int) -> int:
        """Return the size of the memory."""
        return world_size * (_COUNTERS + 1024 + 2 * _CHUNK)

    def exchange(self, send: Array, receive: Array, wait: Wait) -> None:
        """Give a vector to all ranks, and get those of all."""
        sent, received = send.view(np.uint8), receive.view(np.uint8)
        for start in range(0, len(sent), _CHUNK):
            self._exchange(sent[start : start + _CHUNK], received[:, start : start + _CHUNK], wait)

    def _exchange(self, send: Array, receive: Array, wait: Wait) -> None:
        self._number = number = self._number + 1
        place, size = number % 2, len(send)
        self._data[self._rank, place, :size] = send
        self._sizes[self._rank, place] = size
        self._synchronize()
        self._numbers[self._rank] = number
        self._synchronize()
        numbers = self._numbers
        if not (numbers >= number).all():
            wait(lambda: np.flatnonzero(numbers < number).tolist())
        self._synchronize()
        for rank, other in enumerate(self._sizes[:, place].tolist()):
            if other != size:
                raise RankError(
                    f"rank {rank} gives {other} bytes where rank {self._rank} gives {size}: give "
                    "all ranks the same requests and calls, in the same order",
                    rank,
                )
        receive[:] = self._data[:, place, :size]

    def say(self, text: str) -> None:
        """Let the ranks that wait for this one know why it does not come."""
        data = text.encode()[: _TEXT - 1].decode(errors="ignore").encode()
        self._texts[self._rank, : len(data)] = np.frombuffer(data, np.uint8)
        self._synchronize()

    def check(self, ranks: Sequence[int]) -> None:
        """Raise a RankError if one of some ranks has said why it does not come."""
        self._synchronize()
        for rank in ranks:
            if rank != self._rank and self._texts[rank, 0]:
                text = self._texts[rank].tobytes().rstrip(b"\0").decode(errors="replace")
                raise RankError(f"rank {rank} {text}", rank)

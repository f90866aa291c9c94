"""Ranks that are threads of a test, with a window or without."""

import threading
import time

import numpy as np

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.ranks.group import RankGroup

__all__ = ["Shared", "ThreadRanks", "at_once"]


class Shared:
    """State that the ranks of a test share.

    Parameters
    ----------
    world_size : int
    has_window : bool
    deadline : float
        Seconds.
    """

    def __init__(self, world_size, *, has_window=True, deadline=20.0):
        self.world_size, self.has_window, self.deadline = world_size, has_window, deadline
        self.memory = None
        self._lock, self._sent = threading.Lock(), {}
        self._barrier = threading.Barrier(world_size)

    def window(self, num_bytes):
        with self._lock:
            if self.memory is None:
                raw = np.zeros(num_bytes + 64, np.uint8)
                self.memory = raw[-raw.ctypes.data % 64 :][:num_bytes]
        return self.memory

    def gather(self, rank, send, receive):
        self._sent[rank] = send
        self._barrier.wait(self.deadline)
        for other in range(self.world_size):
            receive[other] = self._sent[other]
        self._barrier.wait(self.deadline)

    def ranks(self):
        return [ThreadRanks(self, rank) for rank in range(self.world_size)]


class ThreadRanks(RankGroup):
    """One of them."""

    def __init__(self, shared, rank):
        self.shared, self.rank, self.world_size = shared, rank, shared.world_size
        self.times_asked, self.missing = 0, ()

    def exchange(self, send, receive):
        assert receive.shape == (self.world_size, *send.shape)
        try:
            self.shared.gather(self.rank, send, receive)
        except threading.BrokenBarrierError:
            raise RankError("a rank does not come") from None

    def window(self, num_bytes):
        return self.shared.window(num_bytes) if self.shared.has_window else None

    def while_waiting(self, seconds, ranks):
        self.times_asked, self.missing = self.times_asked + 1, ranks
        if seconds > self.shared.deadline:
            raise RankError(f"ranks {ranks} do not come", ranks[0])


def at_once(function, ranks):
    """Call a function with each rank, in threads; return what each has returned or raised."""
    found = [None] * len(ranks)

    def run(index):
        try:
            found[index] = function(ranks[index])
        except BaseException as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(ranks))]
    for thread in threads:
        thread.start()
    limit = time.monotonic() + 60
    for thread in threads:
        thread.join(max(0.0, limit - time.monotonic()))
        assert not thread.is_alive(), "a rank hangs"
    return found

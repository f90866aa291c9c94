"""Which program has started this process as one of several ranks, by what it leaves behind."""

import os
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Launch", "launch"]

# Which variables tell the number of a rank and of all ranks. Launchers that know several of these
# protocols set several of them: the first that are there count. torchrun comes first, as it may
# have been started by mpiexec on each machine.
_LAUNCHERS = (
    ("torchrun", "torch", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"),
    ("the mpiexec of Open MPI", "mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", None),
    ("the mpiexec of MPICH", "mpi", "PMI_RANK", "PMI_SIZE", None),
    ("the mpiexec of Cray PALS", "mpi", "PALS_RANKID", "PALS_SIZE", None),
    ("a launcher with PMIx", "mpi", "PMIX_RANK", "PMIX_SIZE", None),
    ("a launcher of torch.distributed", "torch", "RANK", "WORLD_SIZE", "MASTER_ADDR"),
)


class Launch(NamedTuple):
    """The launcher of this process, in words, and what its ranks exchange values by.

    The size of the world is None where it does not say.
    """

    launcher: str
    communicator: str
    rank: int
    world_size: int | None


def launch(environ: Mapping[str, str] = os.environ) -> Launch | None:
    """Return what has started this process as one of several ranks, None if nothing has.

    Examples
    --------
    >>> launch({"PMI_RANK": "1", "PMI_SIZE": "2"})
    Launch(launcher='the mpiexec of MPICH', communicator='mpi', rank=1, world_size=2)
    >>> launch({}) is None
    True
    """
    for launcher, communicator, rank, size, needed in _LAUNCHERS:
        if needed is not None and needed not in environ:
            continue
        number, count = _number(environ.get(rank)), _number(environ.get(size))
        says_no_size = number is not None and count is None and communicator == "mpi"
        if says_no_size and size not in environ:
            return Launch(launcher, communicator, number or 0, None)
        if number is not None and count is not None and number < count:
            return Launch(launcher, communicator, number, count)
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None

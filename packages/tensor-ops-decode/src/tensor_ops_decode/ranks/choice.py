"""Which ranks a kernel shares its model with, by its arguments and by what started the process."""

import sys
from collections.abc import Hashable
from typing import Any

from tensor_ops_decode.arguments import whole
from tensor_ops_decode.ranks.communicator import ONE_RANK, Communicator
from tensor_ops_decode.ranks.launchers import Launch, launch
from tensor_ops_decode.ranks.local import LocalRanks

__all__ = ["chosen_ranks"]


def chosen_ranks(
    communicator: object, world_size: object, mpi_rank: object, model: Hashable
) -> Communicator:
    """Return the ranks of a kernel, as its arguments or what started the process say.

    The arguments are those of `PersistentKernel`, None where they are left out; ranks of one
    process find each other by the `model`. A wrong argument is a TypeError or a ValueError, also
    where it does not agree with the others, and a communicator that is not there a RankError.
    """
    size = None if world_size is None else whole("world_size", world_size)
    rank = None if mpi_rank is None else whole("mpi_rank", mpi_rank, 0)
    started = launch()
    if communicator is None:
        communicator = "local"
        if started is not None and started.world_size != 1:
            communicator = started.communicator
    if isinstance(communicator, str) and communicator == "local":
        return _local(size, rank, model)
    ranks = _of_processes(communicator, started)
    here = f"{started.launcher} has started" if started is not None else "the communicator has"
    for name, given, found in (
        ("world_size", size, ranks.world_size),
        ("mpi_rank", rank, ranks.rank),
    ):
        if given is not None and given != found:
            what = f"{found} ranks" if name == "world_size" else f"this process as rank {found}"
            raise ValueError(
                f"{name} is {given}, but {here} {what}; leave it out, or give "
                "communicator='local' if this process is to have all ranks"
            )
    return ranks if ranks.world_size > 1 else ONE_RANK


def _local(size: int | None, rank: int | None, model: Hashable) -> Communicator:
    size = 1 if size is None else size
    if rank is None:
        if size > 1:
            raise ValueError(
                f"mpi_rank is missing: with world_size={size} in one process, make a kernel for "
                f"each mpi_rank from 0 to {size - 1}; or start {size} processes with mpiexec or "
                "torchrun, and leave both out"
            )
        rank = 0
    if rank >= size:
        raise ValueError(
            f"mpi_rank must be from 0 to {size - 1}, as world_size is {size}; got {rank}"
        )
    return ONE_RANK if size == 1 else LocalRanks(rank, size, model)


def _of_processes(communicator: Any, started: Launch | None) -> Communicator:
    """Return the ranks of several processes."""
    name = communicator if isinstance(communicator, str) else None
    if name == "mpi" or _is_of("mpi4py.MPI", "Comm", communicator):
        from tensor_ops_decode.ranks.mpi import mpi_ranks  # which few kernels need

        return mpi_ranks(None if name else communicator, started)
    if name == "torch" or _is_of("torch.distributed", "ProcessGroup", communicator):
        from tensor_ops_decode.ranks.torch_distributed import torch_ranks

        return torch_ranks(None if name else communicator)
    kind = TypeError if name is None else ValueError
    raise kind(
        "communicator must be one of 'mpi', 'torch', 'local', a communicator of mpi4py or a torch "
        f"group, got {communicator!r:.80}"
    )


def _is_of(module: str, name: str, value: object) -> bool:
    """Return whether a value is of a class of a module, which is imported if it is."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)

"""Ranks that exchange values by a group of ``torch.distributed``."""

from __future__ import annotations

import datetime
import os
import time
from typing import Any

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.ranks.deadline import deadline_seconds
from tensor_ops_decode.ranks.processes import ProcessRanks

__all__ = ["TorchRanks", "torch_ranks"]

# For how long a process that has closed its connections may be seen to be there.
_SECONDS_TO_END = 3.0


def torch_ranks(group: Any) -> TorchRanks:
    """Return the ranks of a group of ``torch.distributed``, by default of all processes.

    The default group is made if there is none, with gloo. Raises RankError if there is no PyTorch
    with ``torch.distributed`` here, or nothing has started the process as one of several ranks.
    """
    distributed = _distributed()
    if group is None:
        if not distributed.is_initialized():
            _start(distributed)
        group = distributed.group.WORLD
    if group not in _known:
        _known[group] = TorchRanks(distributed, group)
    return _known[group]


class TorchRanks(ProcessRanks):
    """A rank of a group of ``torch.distributed``, which is the module `distributed`.

    Tensors are exchanged on the host if the group has gloo, else on the current device of CUDA.
    """

    name = "torch.distributed"

    def __init__(self, distributed: Any, group: Any) -> None:
        self._group = group
        newer = getattr(distributed, "all_gather_single", None)  # its newer name
        self._all_gather = newer or distributed.all_gather_into_tensor
        self._device = "cpu" if "gloo" in distributed.get_backend(group) else "cuda"
        super().__init__(distributed.get_rank(group), distributed.get_world_size(group), _exit)

    def _carry(self, send: Array, receive: Array) -> None:
        import torch

        given = torch.from_numpy(send).to(self._device)
        taken = torch.from_numpy(receive).to(self._device)
        try:
            work = self._all_gather(taken.view(-1), given, group=self._group, async_op=True)
            self.wait(lambda: () if work.is_completed() else self.others)
            work.wait()  # which raises what has gone wrong
        except RankError:
            raise
        except RuntimeError as error:
            end = time.monotonic() + _SECONDS_TO_END
            while time.monotonic() < end:
                self.while_waiting(0.0, tuple(self.others))  # which names a rank that has ended
                time.sleep(0.01)
            raise RankError(f"torch.distributed has failed: {error}") from error
        if self._device != "cpu":
            receive[:] = taken.cpu().numpy()


def _exit() -> None:
    """End this process, which ``torchrun`` notices."""
    os._exit(1)


def _distributed() -> Any:
    try:
        from torch import distributed
    except ImportError as error:
        raise RankError(
            f"ranks of torch.distributed need PyTorch, which cannot be imported: {error}"
        ) from None
    if not distributed.is_available():
        raise RankError("this PyTorch was built without torch.distributed; take another build")
    return distributed


def _start(distributed: Any) -> None:
    # It is for what waits in PyTorch; ranks that do not come are noticed before.
    timeout = datetime.timedelta(seconds=60 + 2 * deadline_seconds())
    try:
        distributed.init_process_group("gloo", timeout=timeout)
    except (ValueError, RuntimeError) as error:
        raise RankError(
            "torch.distributed cannot start, which needs what torchrun tells its processes: start "
            f"the program with torchrun: {error}"
        ) from error


_known: dict[Any, TorchRanks] = {}

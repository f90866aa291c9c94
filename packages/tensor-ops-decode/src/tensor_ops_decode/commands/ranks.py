"""A command that runs on several ranks: the first reads and prints, the others do neither."""

import contextlib
import os
from collections.abc import Iterator

from tensor_ops import TensorOpsError
from tensor_ops_decode.ranks.choice import chosen_ranks
from tensor_ops_decode.ranks.communicator import Communicator
from tensor_ops_decode.ranks.launchers import launch

__all__ = ["check_input_ends", "check_one_process", "ranks_of_command"]


def check_one_process(command: str) -> None:
    """Raise a TensorOpsError if this process was started as one of several."""
    started = launch()
    if started is not None and started.world_size != 1:
        raise TensorOpsError(
            f"tensor-ops {command} runs in one process, but {started.launcher} has started "
            "several; start it by itself"
        )


def check_input_ends(ranks: Communicator) -> None:
    """Raise a TensorOpsError where nobody would learn that standard input has ended."""
    started = launch()
    if ranks.world_size > 1 and started is not None and "Open MPI" in started.launcher:
        raise TensorOpsError(
            "Open MPI does not pass on where standard input ends; give the prompt as an argument"
        )


@contextlib.contextmanager
def ranks_of_command() -> Iterator[Communicator]:
    """Give the ranks that what has started the process says, and end all if the block fails.

    On all but the first, what the block prints is dropped.
    """
    ranks = chosen_ranks(None, None, None, "a command")
    try:
        with contextlib.ExitStack() as stack:
            if ranks.rank:
                nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                stack.enter_context(contextlib.redirect_stdout(nowhere))
                stack.enter_context(contextlib.redirect_stderr(nowhere))
            yield ranks
    except BaseException as error:
        ranks.end_all(error)
        raise

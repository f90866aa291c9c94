"""What a rank does when it fails, so that no other one waits for it for ever."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.ranks import witness

if TYPE_CHECKING:
    from tensor_ops_decode.ranks.processes import ProcessRanks

__all__ = ["Faults"]

# For how long a rank that finds another one missing leaves it to that one to tell why.
_SECONDS_TO_TELL = 0.3
# The connection of a process to MPICH's mpiexec, which notices by it that the process has ended.
_CONNECTION = "PMI_FD"


class Faults:
    """Ends all ranks when this process ends by an error, and tells once on a machine why.

    MPI alone does not: a process whose program has raised an error waits in the end of MPI for the
    others, and these wait for it.

    Parameters
    ----------
    ranks : ProcessRanks
        Those that have met.
    abort : callable
        Ends all processes.
    """

    def __init__(self, ranks: ProcessRanks, abort: Callable[[], None]) -> None:
        self._ranks, self._abort = ranks, abort
        here = [rank for rank, each in enumerate(ranks.processes) if each.is_here]
        self._owns_folder = ranks.rank == here[0]
        made = tempfile.mkdtemp(prefix="tensor-ops-ranks-") if self._owns_folder else ""
        self._folder = ranks.gathered(made.encode())[here[0]].decode()
        self._witness = self._with_witness()
        self._before = sys.excepthook
        sys.excepthook = self._end_all
        atexit.register(self._leave)

    def _end_all(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        ranks = self._ranks
        is_of_another = isinstance(error, RankError) and error.rank not in (None, ranks.rank)
        if is_of_another:
            time.sleep(_SECONDS_TO_TELL)
        is_first = witness.first_to_tell(self._folder)
        if is_first or not is_of_another:
            self._before(kind, error, traceback)
        ranks.say(f"has failed: {str(error) or kind.__name__}")
        if is_first:
            text = f"rank {ranks.rank} of {ranks.world_size} has failed; all ranks end"
            print(f"tensor-ops: {text}", file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        self._end_witness()
        self._abort()
        os._exit(1)  # where it does not wait to be ended

    def _leave(self) -> None:
        """Let the others know that this process ends as it should."""
        self._ranks.say("has ended, while others go on")
        self._end_witness()
        if self._owns_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _with_witness(self) -> subprocess.Popen[bytes] | None:
        """Return a witness of this process where MPICH has started it."""
        connection = os.environ.get(_CONNECTION, "")
        if not connection.isdigit() or not sys.executable:
            return None
        ranks = self._ranks
        others = [each.number for each in ranks.processes if each.is_here]
        others.remove(os.getpid())
        words = [ranks.rank, ranks.world_size, os.getpid(), self._folder, *others]
        return subprocess.Popen(
            [sys.executable, "-I", "-S", witness.__file__, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[int(connection)],
            start_new_session=True,  # it is not ended with the rank
        )

    def _end_witness(self) -> None:
        if self._witness is None or self._witness.stdin is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self._witness.stdin.write(b".")
            self._witness.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._witness.wait(timeout=1)

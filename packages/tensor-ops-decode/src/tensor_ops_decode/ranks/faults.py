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
from typing import NoReturn, Protocol

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.ranks import monitor
from tensor_ops_decode.ranks.liveness import Process

__all__ = ["Faults"]

# For how long a rank that finds another one missing leaves it to that one to tell why.
_SECONDS_TO_TELL = 0.3
# For how long it leaves it to the first of those that find it.
_SECONDS_TO_BE_ENDED = 2.0
# The connection of a process to MPICH's mpiexec, which notices by it that the process has ended.
_CONNECTION = "PMI_FD"


class Ranks(Protocol):
    """What is known here of the ranks of several processes."""

    rank: int
    world_size: int
    processes: list[Process]

    def gathered(self, data: bytes) -> list[bytes]:
        """Return the bytes that all ranks give."""

    def say(self, text: str) -> None:
        """Let the ranks that wait for this one know why it does not come."""


class Faults:
    """Ends all ranks when this process ends by an error, and tells once on a machine why.

    MPI alone does not: a process whose program has raised an error waits in the end of MPI for the
    others, and these wait for it. `abort` ends all processes, once the ranks have met.
    """

    def __init__(self, ranks: Ranks, abort: Callable[[], None]) -> None:
        self._ranks, self._abort, self._process = ranks, abort, os.getpid()
        # Where monitors note that one has told; it is made by the first rank here.
        self._folder = self._made_folder = ""
        self._has_told = False
        self._monitor = self._with_monitor()
        self._before = sys.excepthook
        sys.excepthook = self._on_error
        atexit.register(self._leave)

    def _on_error(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if os.getpid() != self._process:  # a forked child, which is no rank
            self._before(kind, error, traceback)
            return
        ranks = self._ranks
        of = error.rank if isinstance(error, RankError) else None
        if of is None or of == ranks.rank or self._is_to_tell_of(of):
            self._before(kind, error, traceback)
            self.tell(f"rank {ranks.rank} of {ranks.world_size} has failed")
        self._end(str(error) or kind.__name__)

    def end_all(self, error: BaseException) -> NoReturn:
        """Tell why this rank ends, and end all."""
        if self._ranks.rank:  # rank 0 has mostly the same to tell
            time.sleep(_SECONDS_TO_BE_ENDED)
        text = str(error) or type(error).__name__
        self.tell(f"rank {self._ranks.rank} of {self._ranks.world_size} has failed: {text}")
        self._end(text)

    def _end(self, text: str) -> NoReturn:
        self._ranks.say(f"has failed: {text}")
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        self._end_monitor(b"!")
        self._abort()
        os._exit(1)  # where it does not wait to be ended

    def tell(self, what: str) -> None:
        """Tell why all ranks end, which nobody else here does then."""
        if self._folder:
            monitor.first_to_tell(self._folder)
        self._has_told = True
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream = sys.__stderr__ or sys.stderr  # where what this rank prints is dropped
            print(f"tensor-ops: {what}; all ranks end", file=stream, flush=True)

    def _is_to_tell_of(self, rank: int) -> bool:
        """Return whether this rank is to tell that another one has failed: all others see it."""
        ranks = self._ranks
        if self._has_told:
            return False
        is_first = ranks.rank == min({*range(ranks.world_size)} - {rank})
        time.sleep(_SECONDS_TO_TELL if is_first else _SECONDS_TO_BE_ENDED)
        has_monitor = self._monitor is not None and ranks.processes[rank].has_ended
        return is_first and not has_monitor

    def _leave(self) -> None:
        """Let the others know that this process ends as it should."""
        if os.getpid() != self._process:
            return
        self._ranks.say("has ended, while others go on")
        self._end_monitor(b".")
        if self._made_folder:
            shutil.rmtree(self._made_folder, ignore_errors=True)

    def _with_monitor(self) -> subprocess.Popen[bytes] | None:
        """Return a monitor of this process where MPICH has started it."""
        connection = os.environ.get(_CONNECTION, "")
        if not connection.isdigit() or not sys.executable:
            return None
        ranks = self._ranks
        here = [rank for rank, each in enumerate(ranks.processes) if each.is_here]
        if ranks.rank == here[0]:
            self._made_folder = tempfile.mkdtemp(prefix="tensor-ops-ranks-")
        self._folder = ranks.gathered(self._made_folder.encode())[here[0]].decode()
        others = [ranks.processes[rank].number for rank in here if rank != ranks.rank]
        words = [connection, self._folder, ranks.rank, ranks.world_size, os.getpid(), *others]
        return subprocess.Popen(
            [sys.executable, "-I", "-S", monitor.__file__, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[int(connection)],
            start_new_session=True,  # it is not ended with the rank
        )

    def _end_monitor(self, last_words: bytes) -> None:
        if self._monitor is None or self._monitor.stdin is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self._monitor.stdin.write(last_words)
            self._monitor.stdin.close()
        if last_words == b".":
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._monitor.wait(timeout=1)

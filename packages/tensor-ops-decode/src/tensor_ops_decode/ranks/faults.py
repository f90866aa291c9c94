"""The end of a rank that fails, so that no other one waits for it for ever."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn, Protocol

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.ranks.liveness import Process, process_of

__all__ = ["Faults"]

# For how long a rank that finds another one missing leaves it to that one to tell why.
_SECONDS_TO_TELL = 0.3
# For how long it leaves it to the first of those that find it.
_SECONDS_TO_BE_ENDED = 2.0
# The connection of a process to MPICH's mpiexec, which notices by it that the process has ended.
_CONNECTION = "PMI_FD"
# A program that tells that the rank has ended, with which its input ends. The input begins with the
# numbers of the processes that would tell it of the other ranks, which are ended first.
_WATCHDOG = (
    'read others; read end; kill -9 $others 2>&-; echo "$0" >&2; kill -9 "$@" 2>&-; sleep 0.2'
)


class Ranks(Protocol):
    """The ranks of several processes, as a rank knows them."""

    rank: int
    world_size: int
    processes: list[Process]

    def values(self, value: Any) -> list[Any]:
        """Return what all ranks give."""

    def leave(self) -> None:
        """Let the ranks that wait for this one know that it does not come."""


class Faults:
    """Ends all ranks when this process ends by an error, and tells once on a machine why.

    MPI alone does not: a process whose program has raised an error waits in the end of MPI for the
    others, and these wait for it. `abort` ends all processes, once the ranks have met.
    """

    def __init__(self, ranks: Ranks, abort: Callable[[], None]) -> None:
        self._ranks, self._abort, self._process = ranks, abort, os.getpid()
        self._has_told = False
        self._name = f"rank {ranks.rank} of {ranks.world_size}"
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._watchdogs = self._with_watchdog()
        self._before = sys.excepthook
        sys.excepthook = self._on_error
        atexit.register(self._leave)

    def _on_error(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if os.getpid() != self._process:  # a forked child, which is no rank
            self._before(kind, error, traceback)
            return
        failed = error.rank if isinstance(error, RankError) else None
        if failed is not None:
            self._leave_it_to_others([failed])
        if not self._has_told:
            self._before(kind, error, traceback)
            self._tell(f"{self._name} has failed")
        if failed not in (None, self._ranks.rank):
            # It may wait in the end of MPI, where MPICH's mpiexec sometimes leaves it.
            self._ranks.processes[failed].kill()
        self._end()

    def end_all(self, error: BaseException) -> NoReturn:
        """Tell why this rank ends, and end all."""
        if self._ranks.rank:  # rank 0 has mostly the same to tell
            time.sleep(_SECONDS_TO_BE_ENDED)
        self._tell(f"{self._name} has failed: {str(error) or type(error).__name__}")
        self._end()

    def tell_of(self, ranks: Sequence[int], text: str) -> None:
        """Tell what some ranks have done, which others here may tell sooner and end all."""
        self._leave_it_to_others(ranks)
        self._tell(text)

    def _end(self) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        self._abort()
        os._exit(1)  # where it does not wait to be ended

    def _tell(self, what: str) -> None:
        if self._has_told:
            return
        self._has_told = True
        for each in self._watchdogs:  # which would tell it too
            each.kill()
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream = sys.__stderr__ or sys.stderr  # where what this rank prints is dropped
            print(f"tensor-ops: {what}; all ranks end", file=stream, flush=True)

    def _leave_it_to_others(self, failed: Sequence[int]) -> None:
        """Wait as long as it takes the failed ranks, or the first of the others, to tell of it."""
        if self._has_told or self._ranks.rank in failed:
            return
        here = [rank for rank, each in enumerate(self._ranks.processes) if each.is_here]
        is_first = self._ranks.rank == min({*here} - {*failed})
        time.sleep(_SECONDS_TO_TELL if is_first else _SECONDS_TO_BE_ENDED)

    def _leave(self) -> None:
        """Let the others know that this process ends as it should."""
        if os.getpid() == self._process:
            self._ranks.leave()
            if self._watchdog is not None:
                self._watchdog.kill()
                self._watchdog.wait()

    def _with_watchdog(self) -> list[Process]:
        """Return a process for each rank that MPICH has started, which tells that it has ended.

        MPICH's mpiexec ends all processes as soon as one is gone, without a word about its rank,
        and with status 0 after ``os._exit(0)``. It does not notice while something else holds the
        connection. The watchdog is ended before its rank ends as it should, or has told why not.
        """
        connection, ranks = os.environ.get(_CONNECTION, ""), self._ranks
        if not connection.isdigit():
            return []
        here = [each.number for each in ranks.processes if each.is_here]
        others = [str(number) for number in here if number != self._process]
        told = "was ended from outside or by os._exit(); all ranks end"
        text = f"tensor-ops: {self._name}, the process {self._process}, {told}"
        self._watchdog = watchdog = subprocess.Popen(
            ["sh", "-c", _WATCHDOG, text, *others],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[int(connection)],
            start_new_session=True,  # it is not ended with the rank
        )
        found = [Process(*each) for each in ranks.values(process_of(watchdog.pid))]
        here = [each.number for each in found if each.is_here and each.number != watchdog.pid]
        assert watchdog.stdin is not None
        watchdog.stdin.write(" ".join(map(str, here)).encode() + b"\n")
        watchdog.stdin.flush()
        return found

"""Whether the processes of other ranks are alive, as far as they are on this machine."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Process", "machine_name", "process_of"]

_ENDED = ("Z", "X")  # states of a process in /proc: a zombie, and one that is dead
_STOPPED = ("T", "t")


class Process(NamedTuple):
    """The process of a rank.

    Processes of one `machine` see each other: its name has the namespace of processes too. The
    `start` tells a process from a later one with its number. Where the system does not say, it is
    empty, and so are the `processors` that the process may run on.
    """

    machine: str
    number: int
    start: str
    processors: Sequence[int] = ()

    @property
    def is_here(self) -> bool:
        """Whether this process sees it."""
        return self.machine == machine_name()

    def shares_processors(self, other: Process) -> bool:
        """Return whether both may run on the same processor."""
        either_is_unknown = not self.processors or not other.processors
        both = either_is_unknown or not {*self.processors}.isdisjoint(other.processors)
        return self.machine == other.machine and both

    @property
    def has_ended(self) -> bool:
        """Whether it is known to have ended."""
        if not self.is_here:
            return False
        state, start = _state(self.number)
        if state is not None:
            return state in _ENDED or self.start not in ("", start)
        if os.name != "posix":  # os.kill() would end it
            return False
        try:
            os.kill(self.number, 0)  # which only asks
        except ProcessLookupError:
            return True
        except OSError:  # it is another user's
            return False
        return False

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""
        return self.is_here and _state(self.number)[0] in _STOPPED

    def kill(self) -> None:
        """End it, if it is here: no signal that it could handle reaches one that is stopped."""
        if os.name == "posix" and self.is_here and not self.has_ended:
            with contextlib.suppress(OSError):
                os.kill(self.number, signal.SIGKILL)


def process_of(number: int) -> Process:
    """Return a process of this machine by its number."""
    known = hasattr(os, "sched_getaffinity")  # not on macOS and Windows
    processors = sorted(os.sched_getaffinity(number)) if known else []
    return Process(machine_name(), number, _state(number)[1], processors)


def _state(number: int) -> tuple[str | None, str]:
    """Return the state of a process and when it was started, as Linux tells them."""
    try:
        text = Path(f"/proc/{number}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None, ""
    words = text[text.rindex(")") + 2 :].split()  # behind the name, which may have any characters
    return words[0], words[19]


@functools.cache
def machine_name() -> str:
    """Return what all processes that see each other call their machine."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()

"""Timing calls within a worker."""

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["calls_per_round", "calls_that_fill", "is_short", "rest", "time_round"]

# A round is long beside the steps of the clock and the waking of threads, and short enough that
# all peers have their turn within what the machine does at that moment.
ROUND_SECONDS = 5e-3
MOST_CALLS = 20_000
# Rounds that a call must take to be slow beyond doubt.
SLOW = 10
TASKS = Path("/proc/self/task")
# Calls at the start of a round that are not timed bring caches and threads back.
WARM_UP_SHARE = 8


def calls_per_round(call: Callable[[], Any]) -> tuple[int, float]:
    """Return the number of calls that fill a round, and about how long one takes."""
    call()  # compiles, in some libraries
    once = time_calls(call, 1)
    if once < SLOW * ROUND_SECONDS:  # one call alone may have been held up
        once = min(once, *(time_calls(call, 1) for _ in range(3)))
    if once < ROUND_SECONDS:
        # A single call of a microsecond is timed too coarsely to divide by.
        few = max(1, min(100, int(1e-4 / once)))
        once = time_calls(call, few)
    return calls_that_fill(once), once


def calls_that_fill(seconds: float) -> int:
    """Return how many calls of so many seconds make a round."""
    return max(1, min(MOST_CALLS, int(ROUND_SECONDS / max(seconds, 1e-9))))


def is_short(calls: int, seconds: float) -> bool:
    """Return whether so many calls of so many seconds leave most of a round empty."""
    return calls < calls_that_fill(seconds) / 4


def time_round(call: Callable[[], Any], calls: int) -> float:
    """Return the mean seconds of one call out of a round of them."""
    if calls > 1:
        time_calls(call, max(1, calls // WARM_UP_SHARE))
    return time_calls(call, calls)


def time_calls(call: Callable[[], Any], calls: int) -> float:
    """Return the mean seconds of one of several calls, each result dropped by the next."""
    start = time.perf_counter()
    for _ in itertools.repeat(None, calls):
        call()
    return (time.perf_counter() - start) / calls


def rest(limit: float = 0.1) -> bool:
    """Wait until no thread of this process spins any more; return False if one still does.

    Libraries let threads spin for some milliseconds after a call, so that the next call finds
    them awake. That is theirs to use within a round, but not during the round of another.
    """
    end = time.perf_counter() + limit
    while time.perf_counter() < end:
        if _is_at_rest():
            return True
    return False


def _is_at_rest() -> bool:
    """Look for a while whether another thread of this process runs or wants to.

    The time that the process has used would not tell: the system brings that of a running thread
    up to date a few hundred times a second.
    """
    own = str(threading.get_native_id())
    for _ in range(3):
        time.sleep(2e-4)
        for task in TASKS.iterdir():
            if task.name != own and _state(task) == "R":
                return False
    return True


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # it has ended
        return ""

"""How a rank waits for another one, and for how long."""

import os
import time
from collections.abc import Callable, Sequence

from tensor_ops_decode.errors import RankError

__all__ = ["VARIABLE", "deadline_seconds", "too_late", "wait"]

#: The environment variable with the seconds.
VARIABLE = "TENSOR_OPS_RANK_DEADLINE"

# A rank that has ended is noticed at once; this is for one that does not go on. Others may be
# packing the weights of a large model meanwhile.
_DEFAULT = 600.0
# A rank that waits tries so often before it lets other processes run between two tries, and then
# so often before it sleeps.
_SPINS, _YIELDS = 200, 2000
_SLEEP = 1e-4
_CHECK_EVERY = 0.05


def deadline_seconds() -> float:
    """Return for how many seconds a rank waits before it gives up.

    Raises ValueError if the environment variable is no positive number.
    """
    text = os.environ.get(VARIABLE, "").strip()
    try:
        seconds = float(text) if text else _DEFAULT
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{VARIABLE} must be a positive number of seconds, got {text!r}")
    return seconds


def too_late(seconds: float, ranks: Sequence[int]) -> RankError:
    """Return the error that some ranks have not come in time."""
    names = " and ".join(f"rank {rank}" for rank in ranks) or "another rank"
    return RankError(
        f"{names} did not come to the same step within {seconds:g} s, the value of {VARIABLE}",
        *ranks[:1],
    )


def wait(
    missing: Callable[[], Sequence[int]], while_waiting: Callable[[float, tuple[int, ...]], None]
) -> None:
    """Wait until no ranks are missing.

    `while_waiting` is called about twenty times a second, with the seconds so far and the ranks. It
    raises an error if it is of no use to wait any longer.
    """
    start, next_check, tries = time.perf_counter(), _CHECK_EVERY, 0
    while ranks := missing():
        tries += 1
        if tries < _SPINS:
            continue
        time.sleep(0 if tries < _YIELDS else _SLEEP)
        seconds = time.perf_counter() - start
        if seconds > next_check:
            next_check = seconds + _CHECK_EVERY
            while_waiting(seconds, tuple(ranks))

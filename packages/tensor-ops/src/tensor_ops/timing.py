"""The time of calls side by side: medians of interleaved rounds, with their confidence interval."""

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Timing", "format_time", "median_interval", "time_calls", "calls_per_round", "mean_time"]

# Fewer samples than this have no 95% confidence interval of their median.
FEWEST_ROUNDS = 6
# A round calls an op for about this long, so that the clock's resolution does not matter.
ROUND_SECONDS = 1e-3


@dataclass(frozen=True)
class Timing:
    """The time of one call, in seconds."""

    # Over the rounds.
    median: float
    # The 95% confidence interval of the median; None for fewer than six rounds.
    low: float | None
    high: float | None
    rounds: int
    # In each round, whose time is divided by them.
    calls: int


def time_calls(
    calls: Mapping[str, Callable[[], Any]],
    seconds: float,
    repeats: int | None = None,
    most: float = math.inf,
) -> dict[str, Timing]:
    """Return the timing of every call, from rounds that are interleaved.

    Parameters
    ----------
    calls : mapping of str to callable
    seconds : float
        For how long, all calls together; at least six rounds are run.
    repeats : int, optional
        The number of rounds, instead of a time.
    most : float, optional
        A call that takes more than so many times as long as the fastest has six rounds only.
    """
    numbers = {name: calls_per_round(call) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    for done in itertools.count():
        enough = time.perf_counter() >= end and done >= FEWEST_ROUNDS
        if not calls or (enough if repeats is None else done >= repeats):
            break
        for name in list(calls)[:: -1 if done % 2 else 1]:
            samples[name].append(mean_time(calls[name], numbers[name]))
        if done + 1 == FEWEST_ROUNDS:
            medians = {name: statistics.median(samples[name]) for name in calls}
            limit = most * min(medians.values())
            calls = {name: call for name, call in calls.items() if medians[name] <= limit}
    found = {}
    for name, each in samples.items():
        low, high = median_interval(each) or (None, None)
        found[name] = Timing(statistics.median(each), low, high, len(each), numbers[name])
    return found


def median_interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95% confidence interval of the median of independent samples.

    The ends are order statistics: for any distribution, the number of samples below its median
    is binomial. There is none for fewer than six samples.

    Examples
    --------
    >>> median_interval([1, 2, 3, 4, 5, 6])
    (1, 6)
    """
    n = len(samples)
    rank = _lower_rank(n)
    if rank == 0:
        return None
    ordered = sorted(samples)
    return ordered[rank - 1], ordered[n - rank]


def format_time(seconds: float) -> str:
    """Return a time in three digits with its unit."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 0.9995:  # what three digits round up to one
            return f"{seconds * factor:#.3g} {unit}".replace(". ", " ")
    return f"{seconds * 1e9:.0f} ns"


def _lower_rank(n: int) -> int:
    """Return the largest rank below which the median lies with a chance of at most 2.5%.

    The normal distribution stands in for the binomial one where that would take numbers of more
    than a thousand bits: with those of a minute of short calls it took hours.
    """
    if n > 1000:
        return int((n + 1 - 1.96 * math.sqrt(n)) / 2)
    rank, below = 0, 1
    while 40 * below <= 2**n:
        rank += 1
        below += math.comb(n, rank)
    return rank


def calls_per_round(call: Callable[[], Any]) -> int:
    # The shortest of three: one alone may have met a page fault or another process.
    once = min(mean_time(call, 1) for _ in range(3))
    return max(1, min(10_000, int(ROUND_SECONDS / max(once, 1e-9))))


def mean_time(call: Callable[[], Any], number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - start) / number

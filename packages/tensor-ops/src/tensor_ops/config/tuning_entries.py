"""Measurements of one case, and the backends in the order of such measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import combinations
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["Entry", "Ranking", "ranking_of"]


class Entry(NamedTuple):
    """Measurements of one case."""

    # The name of a variant, such as ``gelu:none``.
    op: str
    dtype: str
    # The shape of the first argument.
    shape: tuple[int, ...]
    # The day, as in ``2026-11-22``.
    date: str
    # The median time of a call, by backend.
    seconds: Mapping[str, float]
    # The backends that failed or whose result was out of its bound, and how.
    wrong: Mapping[str, str]
    # The 95% confidence intervals of these medians; a median without one is taken as exact.
    intervals: Mapping[str, tuple[float, float]] = MappingProxyType({})
    # Whether other processes took the processors meanwhile. Then no time is faster than another.
    is_disturbed: bool = False

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def ranking(self) -> Ranking:
        """The backends by the times of this case alone."""
        return ranking_of([self], self.size)


class Ranking(NamedTuple):
    """The backends by their measured times."""

    # The fastest first.
    seconds: Mapping[str, float]
    # Backends that must not run, and why.
    wrong: Mapping[str, str]
    # The number of elements that was measured; None for a mean over all that were.
    size: int | None
    # The day of the oldest of these measurements.
    date: str
    # Between which two times each of `seconds` is.
    intervals: Mapping[str, tuple[float, float]]
    # Whether other processes took the processors during one of these measurements.
    is_disturbed: bool

    @property
    def undecided(self) -> list[tuple[str, str]]:
        """The pairs of backends whose times do not show which is the faster."""
        return [
            pair
            for pair in combinations(self.seconds, 2)
            if not (self._is_faster(*pair) or self._is_faster(*reversed(pair)))
        ]

    def order(self, otherwise: Iterable[str]) -> list[str]:
        """Return the backends, the fastest first; `otherwise` is the order of those undecided."""
        places = {name: place for place, name in enumerate(otherwise)}
        left = sorted(self.seconds, key=lambda name: places.get(name, len(places)))
        ordered = []
        while left:
            chosen = next(
                name for name in left if not any(self._is_faster(other, name) for other in left)
            )
            ordered.append(chosen)
            left.remove(chosen)
        return ordered

    def _is_faster(self, one: str, other: str) -> bool:
        return not self.is_disturbed and self.intervals[one][1] < self.intervals[other][0]


def ranking_of(entries: list[Entry], size: int | None) -> Ranking:
    """Rank by the geometric mean over the entries, of the backends that have a time in each."""
    wrong = {name: how for entry in entries for name, how in entry.wrong.items()}
    names = [
        name
        for name in entries[0].seconds
        if name not in wrong and all(name in entry.seconds for entry in entries)
    ]
    means = {name: _geometric_mean([entry.seconds[name] for entry in entries]) for name in names}
    intervals = {
        name: (
            _geometric_mean([_interval(entry, name)[0] for entry in entries]),
            _geometric_mean([_interval(entry, name)[1] for entry in entries]),
        )
        for name in names
    }
    return Ranking(
        dict(sorted(means.items(), key=lambda item: item[1])),
        wrong,
        size,
        min(entry.date for entry in entries),
        intervals,
        any(entry.is_disturbed for entry in entries),
    )


def _interval(entry: Entry, name: str) -> tuple[float, float]:
    return entry.intervals.get(name) or (entry.seconds[name], entry.seconds[name])


def _geometric_mean(values: list[float]) -> float:
    # A single value is returned as it is, without a rounding error.
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values[1:] else values[0]

"""Medians over rounds."""

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tensor_ops.timing import median_interval

__all__ = ["Figure", "figure"]


class Figure(NamedTuple):
    """A median over rounds, with the 95% interval of that median.

    Attributes
    ----------
    value : float
    low, high : float or None
        None for fewer than six rounds.
    """

    value: float
    low: float | None = None
    high: float | None = None


def figure(function: Callable[..., float], *rounds: Sequence[float]) -> Figure | None:
    """Return the median of what a function makes of the numbers of each round."""
    made = [function(*numbers) for numbers in zip(*rounds, strict=False)]
    if not made:
        return None
    return Figure(statistics.median(made), *(median_interval(made) or (None, None)))

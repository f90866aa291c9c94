"""Entry points of installed distributions, however broken one of those may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["claims", "distribution_of", "named"]


def named(group: str) -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points of a group by name; several distributions may claim one name."""
    # Imported here because it takes longer than the rest of this package.
    from importlib.metadata import entry_points

    points: Iterable[EntryPoint]
    try:
        points = entry_points(group=group)
    except Exception:
        points = _readable(group)
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in points:
        found.setdefault(point.name, {})[point.value] = point
    return {name: tuple(points.values()) for name, points in found.items()}


def distribution_of(point: EntryPoint) -> str:
    """Return the name of the distribution that an entry point is of."""
    return point.dist.name if point.dist else point.value


def claims(points: Iterable[EntryPoint]) -> str:
    """Return what is wrong where several distributions claim one name."""
    words = sorted(f"{distribution_of(point)} ({point.value})" for point in points)
    return f"{' and '.join(words)} claim this name; uninstall all but one of them"


def _readable(group: str) -> Iterator[EntryPoint]:
    """Yield what `entry_points` would, had one broken distribution not ended it for all."""
    from importlib.metadata import distributions

    for distribution in distributions():
        try:
            yield from distribution.entry_points.select(group=group)
        except Exception:
            continue

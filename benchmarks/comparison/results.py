"""Results of a record: medians, and ratios that are taken round by round."""

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from comparison.cases import MODES, REUSED, Case
from comparison.driver import FLOOR
from comparison.timing import is_short
from harness.rounds import figure

__all__ = ["OURS", "Cell", "Ratio", "Results"]

# The backend itself: what dispatch adds to it is the business of `DISPATCHED`.
OURS = "tensor_ops_cpp"
DISPATCHED = "tensor_ops"


class Ratio(NamedTuple):
    """How many times as long as ours something takes: above one, ours is faster.

    Attributes
    ----------
    value : float
        The median over rounds, in each of which both had their turn.
    low, high : float or None
        The 95% confidence interval of that median; None for fewer than six rounds.
    entry : str
        What is compared: a peer, with its way if it has several.
    """

    value: float
    low: float | None
    high: float | None
    entry: str


@dataclass(frozen=True)
class Cell:
    """The rounds of one case, by entry."""

    case: Case
    rounds: dict[str, list[float]]

    @property
    def ours(self) -> float | None:
        """Our median in seconds."""
        return self.median(OURS)

    def median(self, entry: str) -> float | None:
        """Return the median seconds of an entry; None if it was not measured."""
        rounds = self.rounds.get(entry)
        return statistics.median(rounds) if rounds else None

    def ratio(self, entry: str) -> Ratio | None:
        """Return how many times as long as ours an entry takes."""
        rounds = self.rounds.get(entry, ()), self.rounds.get(OURS, ())
        found = figure(lambda theirs, ours: theirs / ours, *rounds)
        return Ratio(*found, entry) if found else None

    def of_peer(self, peer: str) -> Ratio | None:
        """Return the ratio of the fastest way of a peer."""
        return self._fastest(entry for entry in self.rounds if owner(entry) == peer)

    def fastest_peer(self) -> Ratio | None:
        """Return the ratio of whichever library is the fastest here."""
        return self._fastest(entry for entry in self.rounds if is_library(owner(entry)))

    def of_copy(self) -> Ratio | None:
        """Return the fraction of the best copy's speed at which ours moves its bytes."""
        return self.of_peer(FLOOR)

    def best_copy(self) -> float | None:
        """Return the seconds of the fastest copy."""
        medians = [self.median(entry) for entry in self.rounds if owner(entry) == FLOOR]
        return min((each for each in medians if each is not None), default=None)

    def _fastest(self, entries: Iterable[str]) -> Ratio | None:
        medians = {entry: self.median(entry) for entry in entries}
        known = {entry: median for entry, median in medians.items() if median is not None}
        return self.ratio(min(known, key=known.__getitem__)) if known else None


class Results:
    """The cells of a record, in the order in which they were measured."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self._cells: dict[Case, Cell] = {}
        for line in content["cells"]:
            case = Case.from_dict(line)
            rounds = {
                entry: [1e-6 * microseconds for microseconds in found["us"]]
                for entry, found in line["entries"].items()
                if found.get("us")
            }
            self._cells[case] = Cell(case, rounds)

    def cell(self, case: Case) -> Cell | None:
        """Return the cell of a case, if it was measured."""
        return self._cells.get(case)

    def cells(self, **wanted: Any) -> Iterator[Cell]:
        """Yield the cells whose cases have these values, as in ``threads=2``."""
        for case, cell in self._cells.items():
            if all(getattr(case, name) == value for name, value in wanted.items()):
                yield cell

    def cases_with_short_rounds(self) -> list[Case]:
        """Return the cases of which an entry's rounds had too few calls."""
        return [
            Case.from_dict(line)
            for line in self.content["cells"]
            if any(
                is_short(found["calls"], 1e-6 * statistics.median(found["us"]))
                for found in line["entries"].values()
                if found.get("us")
            )
        ]

    def values(self, name: str, **wanted: Any) -> list[Any]:
        """Return the different values of a field of the cases, in order."""
        return list(dict.fromkeys(getattr(cell.case, name) for cell in self.cells(**wanted)))

    def label(self, entry: str) -> str:
        """Return what tables call an entry."""
        peer, _, way = entry.partition(" ")
        label: str = self.content["peers"].get(peer, {}).get("label", peer)
        return f"{label} ({way})" if way else label

    def error(self, case: Case, entry: str) -> dict[str, Any] | None:
        """Return the largest error of an entry for this op, dtype and mode."""
        for mode in (case.mode, *MODES):
            known = self.content["errors"].get(f"{case.variant} {case.dtype} {mode}", {})
            if entry in known:
                found: dict[str, Any] = known[entry]
                return found
        return None

    def fraction_of_copy(self, case: Case) -> float | None:
        """Return the fraction of the best copy's speed for either mode."""
        copying = self.cell(Case(case.variant, case.dtype, case.shape, case.threads, REUSED))
        cell = self.cell(case)
        if copying is None or cell is None or cell.ours is None:
            return None
        if case.mode == REUSED:
            ratio = copying.of_copy()
            return ratio.value if ratio else None
        seconds = copying.best_copy()
        return seconds / cell.ours if seconds else None


def is_library(peer: str) -> bool:
    """Return whether a peer is another library: neither one of our packages nor the copy."""
    return peer != FLOOR and not peer.startswith(DISPATCHED)


def owner(entry: str) -> str:
    """Return the peer that an entry belongs to."""
    return entry.partition(" ")[0]

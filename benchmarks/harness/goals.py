"""Goals, and what was found of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.tables import shape_text, table

__all__ = ["Finding", "goal_table"]


@dataclass(frozen=True)
class Finding:
    """One figure beside what it should be.

    Attributes
    ----------
    goal : str
    what : str
        The op with its variant, or the ops that a mean is over.
    dtype : str
    shape : tuple of int
    wanted : float
    found : float
    low, high : float or None
        The 95% confidence interval of what was found.
    against : str
        The entry that was the fastest, or the copy; empty for means.
    of_copy : float or None
        Our fraction of the best copy's speed; None for means.
    """

    goal: str
    what: str
    dtype: str
    shape: tuple[int, ...]
    wanted: float
    found: float
    low: float | None = None
    high: float | None = None
    against: str = ""
    of_copy: float | None = None

    @property
    def label(self) -> str:
        """Its subject, in words."""
        if not any(self.shape):
            return self.what
        return f"{self.what} {self.dtype} {shape_text(self.shape)}"

    @property
    def met(self) -> bool:
        return self.found >= self.wanted

    @property
    def clearly_missed(self) -> bool:
        """Whether all of the interval is below what is wanted."""
        return (self.found if self.high is None else self.high) < self.wanted

    @property
    def lacking(self) -> float:
        """By what part of what is wanted it is missed; negative if it is met."""
        return 1 - self.found / self.wanted


def goal_table(found: Sequence[Finding]) -> str:
    """Return how many figures meet each goal, and the one that is furthest from it.

    Clearly missed is what its whole interval misses.
    """
    rows = []
    for goal in dict.fromkeys(each.goal for each in found):
        own = [each for each in found if each.goal == goal]
        worst = max(own, key=lambda each: each.lacking)
        met = f"{sum(each.met for each in own)} of {len(own)}"
        clearly = sum(each.clearly_missed for each in own)
        rows.append((goal, met, clearly, worst.label, f"{worst.found:.2f} of {worst.wanted:g}"))
    return table(("goal", "met", "clearly missed", "furthest from it", "which has"), rows)

"""Pages with figures from records: where they are, and how their measured blocks are filled."""

import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["BLOCK", "FIGURES", "ROOT", "fill", "update"]

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"

BLOCK = re.compile(r"(<!-- measured (.+?) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def update(path: Path, made: Mapping[str, str]) -> None:
    """Bring the blocks of a page up to date."""
    path.write_text(fill(path.read_text(encoding="utf-8"), made), encoding="utf-8")


def fill(page: str, made: Mapping[str, str]) -> str:
    """Return a page with every block between ``<!-- measured NAME -->`` comments made anew.

    Raises
    ------
    ValueError
        If the page has a block that was not made.
    """

    def replacement(match: re.Match[str]) -> str:
        if match[2] not in made:
            raise ValueError(f"the page has a block {match[2]!r}; there are {', '.join(made)}")
        return f"{match[1]}{made[match[2]]}\n{match[3]}"

    return BLOCK.sub(replacement, page)

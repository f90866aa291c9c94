"""Pages with figures: their tables and drawings, all those of a page from one record."""

import re
from collections.abc import Mapping
from pathlib import Path

from comparison import tables
from comparison.results import Results

__all__ = ["FIGURES", "PAGES", "fill", "update", "write"]

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "docs" / "performance.md", ROOT / "docs" / "performance_by_op.md")
FIGURES = ROOT / "docs" / "figures"

BLOCK = re.compile(r"(<!-- measured (.+?) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def write(results: Results) -> list[Path]:
    """Bring the pages about performance and their figures up to date; return what was written."""
    import summary_figures
    from comparison import figures  # which needs matplotlib

    for page in PAGES:
        update(page, tables.blocks(results))
    FIGURES.mkdir(exist_ok=True)
    drawn = []
    for dtype in results.values("dtype"):
        path = FIGURES / figure_name(dtype)
        figures.draw(results, dtype, path)
        drawn.append(path)
    summary = FIGURES / "summary-performance.svg"
    summary.write_text(summary_figures.performance(results), encoding="utf-8")
    return [*PAGES, *drawn, summary]


def figure_name(dtype: str) -> str:
    """Return the file name of a dtype's figure."""
    return f"performance-{dtype}.svg"


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

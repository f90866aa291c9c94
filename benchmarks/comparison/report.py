"""The pages about performance: their tables and drawings, all of them from one record."""

from pathlib import Path

import summary_figures
from comparison import tables
from comparison.results import Results
from pages import FIGURES, ROOT, update

__all__ = ["PAGES", "figure_name", "write"]

PAGES = (ROOT / "docs" / "performance.md", ROOT / "docs" / "performance_by_op.md")


def write(results: Results) -> list[Path]:
    """Bring the pages about performance and their figures up to date; return what was written."""
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

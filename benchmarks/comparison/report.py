"""The page about performance: its tables and figures, all of them from one record."""

import re
from pathlib import Path

from comparison import tables
from comparison.results import Results

__all__ = ["FIGURES", "PAGE", "fill", "write"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "docs" / "figures"

BLOCK = re.compile(r"(<!-- measured (.+?) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def write(results: Results) -> list[Path]:
    """Bring the page and its figures up to date; return what was written."""
    from comparison import figures  # which needs matplotlib

    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    FIGURES.mkdir(exist_ok=True)
    drawn = []
    for dtype in results.values("dtype"):
        path = FIGURES / figure_name(dtype)
        figures.draw(results, dtype, path)
        drawn.append(path)
    return [PAGE, *drawn]


def figure_name(dtype: str) -> str:
    """Return the file name of a dtype's figure."""
    return f"performance-{dtype}.svg"


def fill(page: str, results: Results) -> str:
    """Return a page with every block between ``<!-- measured NAME -->`` comments made anew.

    Raises
    ------
    ValueError
        If the page has a block that the results have no figures for.
    """
    made = tables.blocks(results)

    def replacement(match: re.Match[str]) -> str:
        if match[2] not in made:
            raise ValueError(f"the page has a block {match[2]!r}; there are {', '.join(made)}")
        return f"{match[1]}{made[match[2]]}\n{match[3]}"

    return BLOCK.sub(replacement, page)

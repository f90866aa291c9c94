"""One figure for each dtype: how much of the best copy's speed each op reaches."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from comparison.cases import ALLOCATED, REUSED, Case
from comparison.goals import LARGE, THREADS
from comparison.results import Cell, Ratio, Results

__all__ = ["draw"]

# Narrow enough to be read on a telephone: of the figure, for each variant, and besides.
WIDTH, ROW, BESIDES = 6.25, 0.45, 1.1
# Luminance falls from one to the next, and hatches tell modes apart, so that print without colour
# tells them apart as well.
SERIES = (
    (REUSED, "ours", "tensor_ops_cpp, out=", "#08306b", ""),
    (REUSED, "fastest", "fastest other library, out=", "#6baed6", ""),
    (REUSED, "torch", "PyTorch, out=", "#d9d9d9", ""),
    (ALLOCATED, "ours", "tensor_ops_cpp, new result", "#7f2704", "////"),
    (ALLOCATED, "fastest", "fastest other library, new result", "#fdae6b", "////"),
)
STYLE: Any = {
    "svg.hashsalt": "tensor_ops",
    "svg.fonttype": "none",
    "font.size": 10.5,
    "hatch.linewidth": 0.6,
}


def draw(results: Results, dtype: str, path: Path) -> None:
    """Draw the large shapes of a dtype into an SVG file, the same bytes for the same figures."""
    shapes = [shape for shape in LARGE if shape in results.values("shape", dtype=dtype)]
    variants = results.values("variant", dtype=dtype)
    with mpl.rc_context(STYLE):
        height = (ROW * len(variants) + BESIDES) * max(1, len(shapes)) + 0.7
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        for index, shape in enumerate(shapes):
            axes = figure.add_subplot(len(shapes), 1, index + 1)
            _draw_panel(axes, results, variants, dtype, shape)
            if index == 0:
                figure.legend(loc="outside upper center", ncols=2, frameon=False)
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def _draw_panel(
    axes: Any, results: Results, variants: list[str], dtype: str, shape: tuple[int, ...]
) -> None:
    width = 0.84 / len(SERIES)
    for number, (mode, who, label, colour, hatch) in enumerate(SERIES):
        fractions = [
            _fraction(results, Case(variant, dtype, shape, THREADS, mode), who) or 0.0
            for variant in variants
        ]
        places = [
            place + (number - (len(SERIES) - 1) / 2) * width for place in range(len(variants))
        ]
        axes.barh(
            *(places, fractions, width),
            label=label,
            color=colour,
            hatch=hatch,
            edgecolor="black",
            linewidth=0.4,
        )
    axes.axvline(1.0, color="black", linewidth=0.9, linestyle="--")
    axes.set_yticks(range(len(variants)), [variant.replace(":", "\n") for variant in variants])
    axes.set_ylim(len(variants) - 0.4, -0.6)
    axes.set_xlabel("speed [fraction of the best copy]")
    axes.set_title(f"{dtype}, {shape}, {THREADS} threads", loc="left", fontsize=10.5)
    axes.grid(axis="x", linewidth=0.4, alpha=0.6)
    axes.set_axisbelow(True)


def _fraction(results: Results, case: Case, who: str) -> float | None:
    """Return the speed of ours or of a peer, relative to the copy of the same bytes."""
    cell = results.cell(case)
    ours = results.fraction_of_copy(case)
    if cell is None or ours is None:
        return None
    if who == "ours":
        return ours
    ratio = _ratio(cell, who)
    return ours / ratio.value if ratio else None


def _ratio(cell: Cell, who: str) -> Ratio | None:
    return cell.fastest_peer() if who == "fastest" else cell.of_peer(who)

"""The two figures of the README, made from the records: how fast, and how accurate.

    python benchmarks/summary_figures.py

They are written as SVG text here, without a plotting library, so that the same records always give
the same bytes and a test can compare them.
"""

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape

import error_tables
from comparison.cases import ALLOCATED
from comparison.goals import THREADS
from comparison.record import read
from comparison.results import Results, is_library
from pages import FIGURES, ROOT
from tensor_ops.variants import VARIANTS

__all__ = [
    "LEFT",
    "LINE",
    "RIGHT",
    "TOP",
    "WIDTH",
    "accuracy",
    "bar",
    "figure",
    "figures",
    "performance",
    "text",
]

RESULTS = ROOT / "benchmarks" / "results"
WIDTH = 600
# Where the plotted area begins and ends, between the labels and the margin.
LEFT, RIGHT = 140, 44
TOP, LINE = 104, 18
SHAPES: dict[tuple[int, ...], tuple[str, str]] = {
    (1, 4096): ("one row", "#9ecae1"),
    (2048, 4096): ("2048 rows", "#08519c"),
}
BACKENDS = {"python": "#969696", "cpp": "#08519c", "opencl": "#e6550d", "cuda": "#31a354"}
DTYPE = "float32"


def main() -> None:
    for name, drawing in figures().items():
        (FIGURES / name).write_text(drawing, encoding="utf-8")


def figures() -> dict[str, str]:
    """Return the figures of the records of this repository by file name."""
    return {
        "summary-performance.svg": performance(Results(read(RESULTS / "peers.json"))),
        "summary-accuracy.svg": accuracy(error_tables.read(RESULTS / "errors.json")),
    }


def performance(results: Results) -> str:
    """Draw how many times as long as tensor_ops_cpp each other library takes."""
    times = {peer: _times(results, peer) for peer in results.content["peers"] if is_library(peer)}
    peers = sorted(times, key=lambda peer: times[peer][(2048, 4096)])
    largest = max(max(found.values()) for found in times.values())
    scale = _logarithmic(largest)
    lines = []
    for place, peer in enumerate(peers):
        y = TOP + place * (2 * LINE + 12)
        lines.append(text(LEFT - 10, y + LINE + 5, results.label(peer), anchor="end"))
        for row, (shape, (_, colour)) in enumerate(SHAPES.items()):
            value, at = times[peer][shape], y + row * LINE
            end = scale(value)
            lines.append(bar(LEFT, at, end - LEFT, LINE - 2, colour))
            lines.append(text(end + 6, at + 13, f"{value:.1f}", size=14))
    bottom = TOP + len(peers) * (2 * LINE + 12)
    ticks = {scale(2.0**k): f"{2**k}" for k in range(1 + int(math.log2(largest)))}
    title = "Time of a call, in multiples of tensor_ops_cpp's"
    details = [
        f"{DTYPE}, rows of 4096, new results, {THREADS} threads, logarithmic scale.",
        "Geometric mean over the ops that a library has. Shorter is faster.",
    ]
    legend = [(name, colour) for name, colour in SHAPES.values()]
    return figure(title, details, legend, ticks, bottom, lines)


def accuracy(record: Mapping[str, Any]) -> str:
    """Draw the largest error of each op on each backend as a fraction of its bound."""
    cells = {
        (cell["variant"], cell["backend"]): cell["error"]
        for cell in record["cells"]
        if cell["dtype"] == DTYPE and not cell["in_float32"]
    }
    backends = [name for name in BACKENDS if any(name == backend for _, backend in cells)]
    # An op that is new is in the next record. Derivatives are on the page alone.
    measured = [
        name
        for name, variant in VARIANTS.items()
        if not variant.op.derivative_of and any(name == each for each, _ in cells)
    ]
    step = 24
    lines = []
    for place, name in enumerate(measured):
        y = TOP + place * step + step // 2
        lines.append(text(LEFT - 10, y + 5, name, anchor="end"))
        lines.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#eeeeee"/>')
        for row, backend in enumerate(backends):
            share = cells[name, backend] / VARIANTS[name].op.bound(DTYPE, backend).limit
            # Equal values stay visible: each backend has its own height.
            at = y + 5 * (row - (len(backends) - 1) / 2)
            lines.append(
                f'<circle cx="{_number(_linear(share))}" cy="{_number(at)}" r="4.5" '
                f'fill="{BACKENDS[backend]}"/>'
            )
    bottom = TOP + len(measured) * step
    ticks = {_linear(k / 4): ("0", "25%", "50%", "75%", "allowed")[k] for k in range(5)}
    title = "The largest error found, as a fraction of what is allowed"
    details = [
        f"{DTYPE}, compared with NumPy in float64.",
        "Further left is more accurate; a test fails beyond the right edge.",
    ]
    return figure(
        title, details, [(each, BACKENDS[each]) for each in backends], ticks, bottom, lines
    )


def _times(results: Results, peer: str) -> dict[tuple[int, ...], float]:
    """Return the geometric mean over ops of a library's time relative to ours, by shape."""
    found: dict[tuple[int, ...], float] = {}
    for shape in SHAPES:
        cells = results.cells(dtype=DTYPE, shape=shape, threads=THREADS, mode=ALLOCATED)
        ratios = [ratio.value for cell in cells if (ratio := cell.of_peer(peer))]
        found[shape] = statistics.geometric_mean(ratios)
    return found


def _logarithmic(largest: float) -> Any:
    room = WIDTH - RIGHT - LEFT

    def place(value: float) -> float:
        return LEFT + room * math.log2(max(value, 1.0)) / math.log2(largest)

    return place


def _linear(share: float) -> float:
    return LEFT + (WIDTH - RIGHT - LEFT) * share


def figure(
    title: str,
    details: list[str],
    legend: list[tuple[str, str]],
    ticks: Mapping[float, str],
    bottom: int,
    lines: list[str],
    left: int = LEFT,
) -> str:
    """Return a drawing of rows: its title, legend and scale, and the lines that are its content.

    `left` is where the plotted area begins.
    """
    height = bottom + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
        text(16, 26, title, size=18, weight="600"),
        *(
            text(16, 48 + 18 * row, line, size=14, colour="#57606a")
            for row, line in enumerate(details)
        ),
        *_legend(legend, left),
        *(
            f'<path d="M{_number(x)} {TOP - 6}V{bottom}" stroke="#d0d7de"/>'
            + text(x, bottom + 18, label, size=14, anchor="middle", colour="#57606a")
            for x, label in ticks.items()
        ),
        *lines,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend(entries: list[tuple[str, str]], left: int) -> Iterator[str]:
    x = float(left)
    for name, colour in entries:
        yield bar(x, 79, 12, 12, colour)
        yield text(x + 18, 90, name, size=14)
        x += 42 + 8 * len(name)


def bar(x: float, y: float, width: float, height: float, colour: str) -> str:
    """Return a rectangle."""
    return (
        f'<rect x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" '
        f'height="{_number(height)}" fill="{colour}"/>'
    )


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 15,
    anchor: str = "start",
    weight: str = "400",
    colour: str = "#1f2328",
) -> str:
    """Return words at a place."""
    return (
        f'<text x="{_number(x)}" y="{_number(y)}" font-size="{size}" text-anchor="{anchor}" '
        f'font-weight="{weight}" fill="{colour}">{escape(words)}</text>'
    )


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


if __name__ == "__main__":
    main()

"""The goals of this project, each held against what was measured with two threads."""

import math
import statistics
from collections.abc import Callable, Iterator

from comparison.cases import ALLOCATED, REUSED
from comparison.results import Cell, Ratio, Results
from harness.goals import Finding

__all__ = ["findings"]

THREADS = 2
ONE_ROW = (1, 4096)
ONE_ROW_GOAL = 1.2
# From here on, the arrays of an op do not fit into a cache.
LARGE = ((2048, 4096), (8192, 4096))
GEOMETRIC_MEANS = {(128, 4096): 1.4, (2048, 4096): 1.3, (8192, 4096): 1.7}
HALF_TYPES = ("float16", "bfloat16")
OF_COPY_HALF = 0.6
OF_COPY_FLOAT32 = {
    "gelu:none": {(2048, 4096): 0.75, (8192, 4096): 0.65},
    "softmax": {(2048, 4096): 0.7, (8192, 4096): 0.7},
}
OF_COPY_FLOAT32_OTHERS = {(2048, 4096): 0.85, (8192, 4096): 0.8}


def findings(results: Results) -> list[Finding]:
    """Return every goal that these results can tell about, in the order of the goals."""
    parts: tuple[Callable[[Results], Iterator[Finding]], ...] = (_modes, _of_copy, _one_row)
    return [finding for part in parts for finding in part(results)]


def _modes(results: Results) -> Iterator[Finding]:
    for mode in (REUSED, ALLOCATED):
        for cell in results.cells(threads=THREADS, mode=mode):
            yield from _against_fastest(results, f"{mode}: no peer faster", cell, 1.0)
        yield from _means(results, mode)
    for cell in results.cells(threads=THREADS, mode=ALLOCATED):
        if cell.case.shape in LARGE:
            yield from _against_fastest(
                results, "allocated, large: twice as fast as any peer", cell, 2.0
            )


def _means(results: Results, mode: str) -> Iterator[Finding]:
    for shape, wanted in GEOMETRIC_MEANS.items():
        cells = results.cells(threads=THREADS, mode=mode, dtype="float32", shape=shape)
        ratios = [ratio.value for cell in cells if (ratio := cell.fastest_peer())]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            what = f"{len(ratios)} ops and variants"
            yield Finding(f"{mode}: geometric mean", what, "float32", shape, wanted, mean)


def _of_copy(results: Results) -> Iterator[Finding]:
    for cell in results.cells(threads=THREADS, mode=REUSED):
        wanted = _fraction_wanted(cell)
        ratio = cell.of_copy()
        if wanted is not None and ratio is not None:
            yield _finding(results, "fraction of the best copy", cell, wanted, ratio)


def _fraction_wanted(cell: Cell) -> float | None:
    case = cell.case
    if case.shape not in LARGE:
        return None
    if case.dtype in HALF_TYPES:
        return OF_COPY_HALF
    if case.dtype != "float32":
        return None
    return OF_COPY_FLOAT32.get(case.variant, OF_COPY_FLOAT32_OTHERS)[case.shape]


def _one_row(results: Results) -> Iterator[Finding]:
    for mode in (REUSED, ALLOCATED):
        for cell in results.cells(threads=THREADS, mode=mode, shape=ONE_ROW):
            yield from _against_fastest(
                results, f"one row, {mode}: {ONE_ROW_GOAL} times any peer", cell, ONE_ROW_GOAL
            )


def _against_fastest(results: Results, goal: str, cell: Cell, wanted: float) -> Iterator[Finding]:
    ratio = cell.fastest_peer()
    if ratio is not None and math.isfinite(ratio.value):
        yield _finding(results, goal, cell, wanted, ratio)


def _finding(results: Results, goal: str, cell: Cell, wanted: float, ratio: Ratio) -> Finding:
    case = cell.case
    return Finding(
        goal,
        case.variant,
        case.dtype,
        case.shape,
        wanted,
        ratio.value,
        ratio.low,
        ratio.high,
        ratio.entry,
        results.fraction_of_copy(case),
    )

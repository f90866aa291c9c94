"""The picture that ``tensor-ops bench --plot`` draws."""

import platform
from typing import Any

from tensor_ops import machine
from tensor_ops.benchmark import Result

__all__ = ["draw"]

BAR_INCHES = 0.22


def draw(results: list[Result], figure_class: Any) -> Any:
    """Return a figure of the median times, with their intervals and speed-ups.

    `figure_class` is matplotlib's; pyplot, which would look for a screen, is not needed.
    """
    cases = list(dict.fromkeys(result.case for result in results))
    backends = list(dict.fromkeys(result.backend for result in results))
    thickness = 0.8 / len(backends)
    height = 1.5 + BAR_INCHES * len(cases) * (len(backends) + 1)
    figure = figure_class(figsize=(9, height), layout="constrained")
    axes = figure.add_subplot()
    for index, backend in enumerate(backends):
        own = [each for each in results if each.backend == backend and each.timing]
        places = [cases.index(each.case) + (index + 0.5) * thickness - 0.4 for each in own]
        _draw_backend(axes, backend, own, places, thickness)
    axes.set_yticks(range(len(cases)), [str(case) for case in cases])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.12, y=0.01)
    axes.set_xlabel("time of a call [us]: median, its 95% interval, speed-up over plain NumPy")
    axes.set_title(f"tensor-ops on {machine.facts()['cpu'] or platform.machine()}")
    if axes.has_data():
        figure.legend(loc="outside lower center", ncols=len(backends))
    return figure


def _draw_backend(
    axes: Any, backend: str, results: list[Result], places: list[float], thickness: float
) -> None:
    timings = [result.timing for result in results if result.timing]
    times = [1e6 * timing.median for timing in timings]
    below = [1e6 * (timing.median - (timing.low or timing.median)) for timing in timings]
    above = [1e6 * ((timing.high or timing.median) - timing.median) for timing in timings]
    axes.barh(places, times, thickness, xerr=[below, above], label=backend, error_kw={"capsize": 2})
    ends = [time + more for time, more in zip(times, above, strict=True)]
    for result, place, end in zip(results, places, ends, strict=True):
        text = f" {result.speedup:.2g}x" if result.speedup else ""
        mark = "" if result.ok else " WRONG"
        axes.annotate(
            text + mark, (end, place), (4, 0), textcoords="offset points", va="center", size=7
        )

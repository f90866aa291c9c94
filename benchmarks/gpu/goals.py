"""The goals on one GPU, each held against the figures of `gpu_check`."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from gpu.parts import BANDWIDTH, CALL, DECODE, GRAPH, HOST, HOST_ARRAYS, LONG_ROWS
from harness.goals import Finding

__all__ = ["COPY", "OURS", "PEERS", "fastest_peer", "findings", "ratio"]

Figure = dict[str, Any]
OURS, COPY = "tensor_ops_cuda", "copy"
PEERS = ("torch", "torch.compile", "Liger-Kernel", "QuACK", "CuPy")

OF_COPY = 0.92
OF_COPY_SOFTMAX = 0.90
OF_COPY_LONG = 0.8
MEAN = 1.2
HOST_SECONDS = 5e-6
OF_COPIES_BOTH_WAYS = 0.8
OVER_NUMPY = 10
# Shares of the data sheet's bandwidth, by type of weights, in steps of these models: one request
# with 512 positions, a block on each multiprocessor.
OF_DATA_SHEET = {"BF16": 0.78, "Q8_0": 0.7, "Q4_0": 0.7}
DECODED, CASE = ("1B", "8B"), [1, 512]


def findings(figures: Sequence[Figure]) -> list[Finding]:
    """Return every goal that these figures can tell about, in the order of the goals."""
    found = [each for figure in figures for each in _of_one(figure)]
    return [*found, *_means(figures)]


def ratio(figure: Figure, slower: str, faster: str = OURS) -> tuple[float, float, float] | None:
    """Return how many times as long one takes as another: median, least and greatest of rounds.

    Seven rounds cover their true median with 98%.
    """
    times = figure.get("us", {})
    if slower not in times or faster not in times:
        return None
    rounds = [a / b for a, b in zip(times[slower], times[faster], strict=False)]
    return statistics.median(rounds), min(rounds), max(rounds)


def fastest_peer(figure: Figure) -> str | None:
    """Return the library that took the least time."""
    times = figure.get("us", {})
    there = [name for name in PEERS if name in times]
    return min(there, key=lambda name: statistics.median(times[name]), default=None)


def _of_one(figure: Figure) -> Iterator[Finding]:
    way, variant, n = figure["way"], figure["variant"], figure["shape"][1]
    if way == BANDWIDTH:
        least = OF_COPY_SOFTMAX if variant == "softmax" else OF_COPY
        if n == LONG_ROWS:
            yield from _finding("of the copy, rows of 65536", figure, OF_COPY_LONG, COPY)
        else:
            yield from _finding("of the copy, rows of 1024 to 16384", figure, least, COPY)
    elif way in (CALL, GRAPH):
        peer = fastest_peer(figure)
        if peer is not None:
            goal = "no library faster" + (", in a graph" if way == GRAPH else "")
            yield from _finding(goal, figure, 1.0, peer)
    elif way == HOST and OURS in figure.get("us", {}):
        seconds = 1e-6 * statistics.median(figure["us"][OURS])
        shape = tuple(figure["shape"])
        yield Finding(
            "a call costs the host 5 us", variant, figure["dtype"], shape, 1, HOST_SECONDS / seconds
        )
    elif way == HOST_ARRAYS:
        entry = f"{OURS} out="
        yield from _finding("NumPy arrays: of the copies", figure, OF_COPIES_BOTH_WAYS, COPY, entry)
        yield from _finding("NumPy arrays: times NumPy", figure, OVER_NUMPY, "python", OURS)
    elif way == DECODE and OURS in figure.get("us", {}) and "bandwidth" in figure:
        yield from _of_decode(figure)


def _of_decode(figure: Figure) -> Iterator[Finding]:
    if figure["model"] not in DECODED or figure["shape"] != CASE or figure["blocks"]:
        return
    shares = [1e6 * figure["bytes"] / us / figure["bandwidth"] for us in figure["us"][OURS]]
    found = statistics.median(shares), min(shares), max(shares)
    what = f"{figure['model']} {figure['variant']}"
    wanted = OF_DATA_SHEET[figure["variant"]]
    yield Finding("decode: of the data sheet's bandwidth", what, "", (0, 0), wanted, *found)


def _finding(
    goal: str, figure: Figure, wanted: float, against: str, ours: str = OURS
) -> Iterator[Finding]:
    found = ratio(figure, against, ours)
    if found is not None:
        shape = tuple(figure["shape"])
        what = figure["variant"], figure["dtype"]
        yield Finding(goal, *what, shape, wanted, *found, against)


def _means(figures: Sequence[Figure]) -> Iterator[Finding]:
    for way, text in ((CALL, "geometric mean"), (GRAPH, "geometric mean, in a graph")):
        ratios = [
            found[0]
            for figure in figures
            if figure["way"] == way
            and (peer := fastest_peer(figure)) is not None
            and (found := ratio(figure, peer)) is not None
        ]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            yield Finding(text, f"{len(ratios)} figures", "all", (0, 0), MEAN, mean)

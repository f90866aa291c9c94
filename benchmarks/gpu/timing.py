"""Times on the device, by its own events; everything that is compared takes turns."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

__all__ = ["Call", "host_seconds", "in_graphs", "on_stream"]

Call = Callable[[], Any]

ROUNDS = 7
# A turn lasts about so long, so that the events' own resolution does not count.
TURN = 2e-3
MOST_CALLS = 200
# Calls in a turn by the host's clock; more would wait for room in the queue of a stream.
HOST_CALLS = 500


def on_stream(entries: Mapping[str, Sequence[Call]], *, ahead: bool) -> dict[str, list[float]]:
    """Return the seconds of a call, by entry and round, as calls follow one another on a stream.

    Every entry is a call on each of several sets of arrays, which are used in turn. With `ahead`
    the device waits until all calls of a turn are enqueued, so that the host's time is left out.
    """
    counts = {name: _count(calls) for name, calls in entries.items()}
    found: dict[str, list[float]] = {name: [] for name in entries}
    for number in range(ROUNDS):
        for name in _turned(list(entries), number):
            found[name].append(_turn(entries[name], counts[name], ahead))
    return found


def in_graphs(
    entries: Mapping[str, Sequence[Call]],
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Return the seconds of a call replayed in a graph, and why entries cannot be captured."""
    graphs: dict[str, tuple[torch.cuda.CUDAGraph, int]] = {}
    failures = {}
    for name, calls in entries.items():
        try:
            graphs[name] = _captured(calls, max(len(calls), _count(calls)))
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}"
            torch.cuda.synchronize()
    found: dict[str, list[float]] = {name: [] for name in graphs}
    for number in range(ROUNDS):
        for name in _turned(list(graphs), number):
            graph, count = graphs[name]
            found[name].append(_turn([graph.replay], 1, True) / count)
    return found, failures


def host_seconds(call: Call) -> list[float]:
    """Return the host's seconds of a call whose kernels are shorter than it, by round."""
    from time import perf_counter

    found = []
    for _ in range(ROUNDS):
        for _ in range(HOST_CALLS // 5):
            call()
        torch.cuda.synchronize()
        began = perf_counter()
        for _ in range(HOST_CALLS):
            call()
        found.append((perf_counter() - began) / HOST_CALLS)
        torch.cuda.synchronize()
    return found


def _turn(calls: Sequence[Call], count: int, ahead: bool) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    if ahead:
        torch.cuda._sleep(1_000_000 + 40_000 * count)
    start.record()
    for number in range(count):
        calls[number % len(calls)]()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / count


def _count(calls: Sequence[Call]) -> int:
    """Return how many calls a turn has, after warming up."""
    for call in calls:
        call()
    few = max(3, len(calls))
    seconds = statistics.median(_turn(calls, few, False) for _ in range(3))
    return max(few, min(MOST_CALLS, round(TURN / seconds)))


def _captured(calls: Sequence[Call], count: int) -> tuple[torch.cuda.CUDAGraph, int]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(count):
            calls[number % len(calls)]()
    graph.replay()
    torch.cuda.synchronize()
    return graph, count


def _turned(names: list[str], number: int) -> list[str]:
    """Return names in another order in each round."""
    start = number % len(names) if names else 0
    return names[start:] + names[:start]

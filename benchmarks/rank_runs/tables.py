"""Tables of the page about a record of ranks: what was measured, and what is predicted from it."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from harness.tables import table
from rank_runs.cost import Cost, Link, RankStep, cost_of, step_of
from rank_runs.shapes import SIZES, program_of_size
from tensor_ops_decode import shard

__all__ = ["exchanges", "link_of", "predicted", "predictions", "setting", "speed"]

Record = dict[str, Any]

CONTEXT = 1000  # tokens, in predictions
#: What a machine of two sockets reads, with 12 channels of DDR5-4800 each, and how much of that a
#: step reaches, as on the machines of the page.
MACHINE, REACHED = 921.6e9, 0.85
#: 100 Gb/s, of which nine tenths are payload.
NETWORK = 0.9 * 100e9 / 8


@dataclass(frozen=True)
class Place:
    """Where ranks might be: what each of them reads per second, and how they reach each other."""

    name: str
    ranks: int
    bandwidth: float
    link: Link


def places(record: Record) -> list[Place]:
    """Return the places of which the page predicts something."""
    here = link_of(record)
    # Each rank looks whether all others have come.
    eight = Link(here.latency * 8 / record["how"]["ranks"], here.bandwidth)
    whole = MACHINE * REACHED
    return [
        Place("one process", 1, whole, here),
        Place("8 ranks of one machine", 8, whole / 8, eight),
        Place("4 machines, 20 µs", 4, whole, Link(20e-6, NETWORK)),
        Place("4 machines, 60 µs", 4, whole, Link(60e-6, NETWORK)),
    ]


def link_of(record: Record) -> Link:
    """Return how the ranks of a record reach one another, by its shortest and longest vectors."""
    times = {int(size): each["median"] for size, each in record["allreduces"].items()}
    least, most = min(times), max(times)
    longer = max(times[most] - times[least], 1e-12)
    received = 4 * (most - least) * (record["how"]["ranks"] - 1)
    return Link(max(times[least], 0.0), received / longer)


def predicted(record: Record, model: Record) -> Cost:
    """Return what a step of the ranks should take, by what one process takes."""
    one, ranks = (RankStep(**model["steps"][name]) for name in ("one", "ranks"))
    bandwidth = one.bytes_read / statistics.median(model["seconds"]["one"])
    return cost_of(ranks, bandwidth / ranks.world_size, link_of(record))


def setting(record: Record) -> str:
    """Return what was measured where."""
    how = record["how"]
    return (
        f"{record['device']}; commit {record['commit']}; {record['launcher']}; {how['rounds']} "
        f"rounds of {how['steps']} steps after a prompt of {how['prompt']} tokens."
    )


def exchanges(record: Record) -> str:
    """Return the table of allreduces."""
    rows = []
    for size, each in record["allreduces"].items():
        median, first, third = (1e6 * each[name] for name in ("median", "first", "third"))
        rows.append([f"{int(size):,}", f"{median:.1f}", f"{first:.1f} to {third:.1f}"])
    return table(["floats", "µs, median", "quartiles"], rows)


def speed(record: Record) -> str:
    """Return the table of models: of one process, of ranks, and what was predicted for these."""
    rows = []
    for name, model in record["models"].items():
        one, ranks = (model["seconds"][each] for each in ("one", "ranks"))
        ratios = [a / b for a, b in zip(one, ranks, strict=True)]
        cost = predicted(record, model).total
        measured = statistics.median(ranks)
        rows.append(
            [
                name,
                _rate(statistics.median(one)),
                _rate(measured),
                f"{statistics.median(ratios):.2f}",
                _quartiles(ratios),
                _rate(cost),
                f"{cost / measured - 1:+.0%}",
            ]
        )
    heads = ["model", "one process", "ranks", "ratio", "quartiles", "predicted", "time, off by"]
    return table(heads, rows)


def predictions(record: Record) -> str:
    """Return the table of large models, none of which was run."""
    rows = []
    for name in SIZES:
        for place in places(record):
            step = _step_of_size(name, place.ranks)
            cost = cost_of(step, place.bandwidth, place.link)
            parts = (cost.reading, cost.allreduces, cost.gathers)
            rows.append(
                [
                    name,
                    place.name,
                    f"{step.bytes_read / 1e9:.2f}",
                    *(f"{1e3 * seconds:.2f}" for seconds in parts),
                    f"{1 / cost.total:,.0f}",
                ]
            )
    heads = ["model", "ranks", "GB read by each", "ms of reading", "of allreduces", "of the gather"]
    return table([*heads, "tokens per second, predicted"], rows)


@cache
def _step_of_size(name: str, ranks: int) -> RankStep:
    program = program_of_size(name)
    return step_of([shard(program, rank, ranks) for rank in range(ranks)], CONTEXT)


def _rate(seconds: float) -> str:
    return f"{1 / seconds:,.0f}"


def _quartiles(values: Iterable[float]) -> str:
    first, _, third = statistics.quantiles(values, n=4)
    return f"{first:.2f} to {third:.2f}"

"""Time of a decode step of several ranks: a model of bytes, bandwidth and exchanges.

Ranks wait for one another at every exchange, so that what is between two of them takes as long as
the rank that reads the most. An exchange takes a latency, and the time of what a rank receives.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Program
from tensor_ops_decode.program.step_reads import cache_bytes_read, weight_bytes_read

__all__ = ["Cost", "Link", "RankStep", "cost_of", "step_of"]


@dataclass(frozen=True)
class RankStep:
    """A step of one token, of all ranks.

    Attributes
    ----------
    world_size : int
    bytes_read : int
        What the slowest rank reads of weights and caches, from exchange to exchange.
    allreduces : int
    allreduce_bytes : int
        What each rank gives to one of them.
    gathers : int
    gather_bytes : int
        What each rank gives to one of them.
    """

    world_size: int
    bytes_read: int
    allreduces: int = 0
    allreduce_bytes: int = 0
    gathers: int = 0
    gather_bytes: int = 0


@dataclass(frozen=True)
class Link:
    """How ranks reach one another.

    Attributes
    ----------
    latency : float
        Seconds of an exchange of very little.
    bandwidth : float
        Bytes per second that a rank receives.
    """

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Cost:
    """Seconds of a step.

    Attributes
    ----------
    reading, allreduces, gathers : float
    """

    reading: float
    allreduces: float
    gathers: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.reading + self.allreduces + self.gathers


def cost_of(step: RankStep, bandwidth: float, link: Link) -> Cost:
    """Return what a step takes.

    Parameters
    ----------
    step : RankStep
    bandwidth : float
        Bytes per second at which each rank reads.
    link : Link

    Examples
    --------
    >>> cost_of(RankStep(2, 10**9, 64, 16384), 50e9, Link(5e-6, 10e9)).total
    0.0204248576
    """

    def exchanges(count: int, size: int) -> float:
        return count * (link.latency + (step.world_size - 1) * size / link.bandwidth)

    return Cost(
        step.bytes_read / bandwidth,
        exchanges(step.allreduces, step.allreduce_bytes),
        exchanges(step.gathers, step.gather_bytes),
    )


def step_of(shards: Sequence[Program], context: int) -> RankStep:
    """Return the step of ranks at a request's token of this number.

    Parameters
    ----------
    shards : sequence of Program
        Those of all ranks; or the whole program alone.
    context : int
    """
    reads = [_reads_between_exchanges(each, context) for each in shards]
    sizes: dict[str, list[int]] = {"allreduce": [], "allgather": []}
    for node in shards[0].nodes:
        if KINDS[node.kind].exchanges:
            given = [4 * each.values[node.inputs["x"]].columns for each in shards]
            sizes[node.kind].append(max(given))
    return RankStep(
        len(shards),
        sum(map(max, zip(*reads, strict=True))),
        len(sizes["allreduce"]),
        max(sizes["allreduce"], default=0),
        len(sizes["allgather"]),
        max(sizes["allgather"], default=0),
    )


def _reads_between_exchanges(program: Program, context: int) -> list[int]:
    """Return the bytes that a rank reads before each exchange, and after the last."""
    found = [0]
    for node in program.nodes:
        found[-1] += sum(weight_bytes_read(program, node).values())
        found[-1] += cache_bytes_read(program, node, context)
        if KINDS[node.kind].exchanges:
            found.append(0)
    return found

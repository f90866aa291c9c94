"""Figures of measured steps: speed, bandwidth, the time of each kind of node, and what limits."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensor_ops_decode.measure.benchmark import ProfiledStep, Samples
from tensor_ops_decode.program import Node, Program
from tensor_ops_decode.program.phases import kinds_of_phase
from tensor_ops_decode.program.step_reads import cache_bytes_read, weight_bytes_read

__all__ = ["DecodeFigures", "KindTime", "Stage", "node_times"]


class KindTime(NamedTuple):
    """Time that the nodes of one kind, or of kinds that run together, take of a token.

    The kind of the latter is such as ``"rms_norm+linear"``, and those that run together are one
    node. The seconds are the mean of the threads, without waiting, and the bytes those of weights
    and caches.
    """

    kind: str
    nodes: int
    seconds: float
    bytes: float


class Stage(NamedTuple):
    """Where the time of a token goes, while a prompt is read or while tokens are decoded.

    The slowest kinds come first. The parts are the seconds of a token, divided into ``memory
    bandwidth``, the time that its bytes take at the measured bandwidth; ``arithmetic``, what the
    nodes take beyond that; ``waiting for threads``; and ``Python between steps``, what a call takes
    besides its steps.
    """

    tokens: int
    tokens_per_second: float
    kinds: tuple[KindTime, ...]
    parts: Mapping[str, float]

    @staticmethod
    def of(
        program: Program,
        steps: Sequence[ProfiledStep],
        tokens_per_second: float,
        bandwidth: float,
        steps_per_call: float = 1,
    ) -> Stage:
        """Return the stage that profiled steps make up, with the bandwidth in bytes per second.

        Those profiled had calls of their own. What Python takes of one is divided among
        `steps_per_call`.
        """
        tokens = sum(step.tokens for step in steps)
        kinds: dict[str, KindTime] = {}
        for phase in steps[0].profile.phases:
            kind, nodes = kinds_of_phase(program, phase), [program.nodes[each] for each in phase]
            of_steps = [step.profile.work[:, [*phase]].sum(axis=1).mean() for step in steps]
            seconds = sum(of_steps) / tokens
            weights = sum(_weights(program, node, step.tokens) for node in nodes for step in steps)
            caches = sum(
                cache_bytes_read(program, node, step.context) for node in nodes for step in steps
            )
            before = kinds.get(kind, KindTime(kind, 0, 0.0, 0.0))
            kinds[kind] = KindTime(
                kind,
                before.nodes + 1,
                before.seconds + float(seconds),
                before.bytes + (weights + caches) / tokens,
            )
        work = sum(kind.seconds for kind in kinds.values())
        within = sum(step.profile.seconds for step in steps) / tokens
        reading = sum(kind.bytes for kind in kinds.values()) / bandwidth
        between = sum(step.seconds for step in steps) / tokens - within
        parts = {
            "memory bandwidth": min(reading, work),
            "arithmetic": work - min(reading, work),
            "waiting for threads": within - work,
            "Python between steps": between / steps_per_call,
        }
        slowest = tuple(sorted(kinds.values(), key=lambda kind: -kind.seconds))
        return Stage(tokens, tokens_per_second, slowest, parts)

    @property
    def seconds(self) -> float:
        """The sum of the parts."""
        return sum(self.parts.values())

    @property
    def limit(self) -> str:
        """The largest part."""
        return max(self.parts, key=self.parts.__getitem__)

    def as_dict(self) -> dict[str, Any]:
        """Return every figure as a plain value."""
        kinds = [kind._asdict() for kind in self.kinds]
        return self._asdict() | {"kinds": kinds, "parts": dict(self.parts), "limit": self.limit}


class DecodeFigures(NamedTuple):
    """The figures of a benchmark.

    The weights and caches are bytes that a decoded token reads, of caches in the middle of the
    decoded text. The bandwidth is that at which the threads read the weights, in bytes per second,
    and the fraction what of it decoding reaches: both are the median of the rounds. The threads are
    those that took part in a step on average, fewer where other processes take the processors.
    """

    weights: float
    caches: float
    bandwidth: float
    fraction: float
    threads: float
    prompt: Stage
    decode: Stage

    @staticmethod
    def of(program: Program, samples: Samples) -> DecodeFigures:
        """Return the figures of samples, which have a round at least."""
        nodes = program.nodes
        weights = sum(_weights(program, node) for node in nodes)
        context = (samples.prompt[-1].context + samples.decode[-1].context) // 2
        caches = sum(cache_bytes_read(program, node, context) for node in nodes)
        rounds = samples.rounds
        tokens = sum(each.tokens for each in rounds)
        seconds = statistics.median(each.seconds / each.tokens for each in rounds)
        bandwidth = statistics.median(each.bandwidth for each in rounds)
        fraction = statistics.median(
            (weights + caches) * each.tokens / each.seconds / each.bandwidth for each in rounds
        )
        # Other processes lengthen some steps, so that the middle half by time stands for all.
        ordered = sorted(samples.decode, key=lambda step: step.seconds)
        quarter = len(ordered) // 4
        middle = ordered[quarter : len(ordered) - quarter]
        read = sum(step.tokens for step in samples.prompt)
        rate = read / sum(step.seconds for step in samples.prompt)
        prompt = Stage.of(program, samples.prompt, rate, bandwidth)
        decode = Stage.of(program, middle, 1 / seconds, bandwidth, tokens / len(rounds))
        decode = decode._replace(tokens=tokens)
        threads = statistics.mean(len(step.profile.work) for step in samples.decode)
        return DecodeFigures(weights, caches, bandwidth, fraction, threads, prompt, decode)

    def as_dict(self) -> dict[str, Any]:
        """Return every figure as a plain value."""
        return self._asdict() | {
            "prompt": self.prompt.as_dict(),
            "decode": self.decode.as_dict(),
        }


def node_times(program: Program, steps: Sequence[ProfiledStep]) -> list[dict[str, Any]]:
    """Return what each node took on average of the steps and the threads, in seconds."""
    work, wait = (
        np.mean([getattr(step.profile, what).mean(axis=0) for step in steps], axis=0)
        for what in ("work", "wait")
    )
    return [
        {"name": node.name, "kind": node.kind, "work": float(work[i]), "wait": float(wait[i])}
        for i, node in enumerate(program.nodes)
    ]


def _weights(program: Program, node: Node, num_tokens: int = 1) -> int:
    """Return the bytes of a node's weights that a step of this number of tokens reads."""
    return sum(weight_bytes_read(program, node, num_tokens).values())

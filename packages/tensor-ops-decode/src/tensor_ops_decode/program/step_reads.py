"""The bytes that a step reads from memory, which bound how fast a model can decode."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program.node_rules import TOKENS
from tensor_ops_decode.program.program import Node, Program, State

__all__ = ["StepReads", "cache_bytes_read", "weight_bytes_read"]


class StepReads(NamedTuple):
    """Bytes that a step of one token reads, as the program stores them.

    A step of several tokens reads the matrices once for all of them, and the caches of each
    request.

    Attributes
    ----------
    weights : mapping of str to mapping of str to int
        Bytes by the kind of node, and by type.
    cache_per_token : int
        Bytes of the caches for each token of the request so far.
    context : int
        The tokens of the longest sequence.
    caches : int
        Bytes of the caches at the longest sequence; fewer than that many times `cache_per_token`
        if layers attend to a window.
    states : int
        Bytes of the states of a request, which a step also writes.
    """

    weights: Mapping[str, Mapping[str, int]]
    cache_per_token: int
    context: int
    caches: int
    states: int = 0

    @staticmethod
    def of(program: Program) -> StepReads:
        """Return what the steps of a program read."""
        weights: dict[str, Counter[str]] = {}
        nodes = program.nodes[: program.num_step_nodes]
        for node in nodes:
            if node.weights:
                weights.setdefault(node.kind, Counter()).update(weight_bytes_read(program, node))
        context = program.limits.longest

        def read_at(length: int) -> int:
            return sum(cache_bytes_read(program, node, length) for node in nodes)

        by_kind = {kind: dict(types) for kind, types in weights.items()}
        kept = [cache for cache in program.caches.values() if isinstance(cache, State)]
        states = sum(4 * cache.rows * cache.columns for cache in kept)
        per_token, caches = read_at(1) - states, read_at(context) - states
        return StepReads(by_kind, per_token, context, caches, states)

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as plain values."""
        return self._asdict() | {"weights": {kind: dict(of) for kind, of in self.weights.items()}}

    def __str__(self) -> str:
        every = {
            f"{kind} {type_}": size
            for kind, types in self.weights.items()
            for type_, size in types.items()
        }
        total = sum(every.values())
        largest = sorted(every.items(), key=lambda item: -item[1])
        shares = [f"{name} {size / total:.1%}" for name, size in largest if size >= total / 1000]
        weights = f"{total / 2**20:.1f} MiB of weights ({', '.join(shares)})"
        if self.states:
            weights += f", {self.states / 2**20:.1f} MiB of states of each request"
        if not self.cache_per_token:
            return weights
        share = self.caches / (total + self.states + self.caches)
        return (
            f"{weights}, and {self.cache_per_token / 2**10:.1f} KiB of caches for each token so "
            f"far: {self.caches / 2**20:.1f} MiB at {self.context} tokens, {share:.0%} of all"
        )


def weight_bytes_read(program: Program, node: Node, num_tokens: int = 1) -> dict[str, int]:
    """Return the bytes of a node's weights that a step of this number of tokens reads, by type.

    Of matrices that tokens choose, they are those of the most that the tokens can choose.
    """
    kind, found = KINDS[node.kind], Counter[str]()
    for slot in kind.weights:
        tensors = [program.tensors[name] for name in node.weights.get(slot.name, ())]
        for tensor in tensors:
            rows = 1 if slot.is_table else math.prod(tensor.shape[:-1])
            found[tensor.type] += rows * tensor.row_bytes
        if slot.chosen_by and slot.form == "stack" and tensors:
            planes = kind.num_planes(slot, node.attributes, tensors[0].shape)
            chooser = program.values.get(node.inputs[slot.chosen_by], TOKENS.value)
            chosen = min(planes, num_tokens * chooser.columns)
            found = Counter({each: size * chosen // planes for each, size in found.items()})
    return dict(found)


def cache_bytes_read(program: Program, node: Node, context: int) -> int:
    """Return the bytes of its cache that a node reads at a request's token of this number."""
    if "cache" not in node.attributes:
        return 0
    cache, name = program.caches[node.attributes["cache"]], KINDS[node.kind].window
    if isinstance(cache, State):
        return 4 * cache.rows * cache.columns
    window = node.attributes[name] if name else 0
    positions = min(context, window) if window else context
    return positions * cache.bytes_per_token

"""Embeddings beside requests: texts go through the model in slots that no request has.

Tested by tests/decode/generation/test_embed.py.
"""

from collections.abc import Sequence

from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.scheduling.pooling import Pool
from tensor_ops_decode.scheduling.requests import Requests
from tensor_ops_decode.scheduling.sampling import Sampling, write_sampling

__all__ = ["EmbeddingRequests"]


class EmbeddingRequests(Requests):
    """Requests of an executable whose steps may leave the states of all tokens."""

    def embed(self, sequences: Sequence[Sequence[int]], states: str, pooling: str) -> list[Array]:
        """Return the embeddings of the first sequences, as many as slots and pages are free for.

        Their steps select no token, so that no logits are computed; `states` is the output that
        they leave. What the caches have of a sequence is given up after that.
        """
        lengths = self._lengths_with_room(sequences)
        slots, pools = list(lengths), {slot: Pool(pooling) for slot in lengths}
        self._rows = {}  # of the outputs, which are overwritten
        for slot in slots:
            write_sampling(self._arrays, slot, Sampling(), [])
        done = dict.fromkeys(slots, 0)
        try:
            while plan := self._next_parts(done, lengths):
                end = 0
                for slot, places in plan:
                    begin, end = end, end + len(places)
                    tokens = sequences[slots.index(slot)][places.start : places.stop]
                    self._write(range(begin, end), slot, tokens, places)
                self._pages.hold({slot: places.stop for slot, places in plan})
                self._executable.run(end, 0)
                rows: Array = self._arrays[states]
                end = 0
                for slot, places in plan:
                    begin, end = end, end + len(places)
                    pools[slot].add(rows[begin:end])
                    done[slot] = places.stop
        finally:
            self.retire()  # takes back the pages
        return [pools[slot].result() for slot in slots]

    def _lengths_with_room(self, sequences: Sequence[Sequence[int]]) -> dict[int, int]:
        """Return the slots of the first sequences that there is room for, and their lengths."""
        active = {self._active[number].slot for number in self.active}
        lengths: dict[int, int] = {}
        free = sorted(set(range(self._limits.max_requests)) - active)
        for slot, tokens in zip(free, sequences, strict=False):
            more = {**lengths, slot: len(tokens)}
            if self._pages.first_without(more) is not None:
                break
            lengths = more
        return lengths

    def _next_parts(self, done: dict[int, int], lengths: dict[int, int]) -> list[tuple[int, range]]:
        """Return which tokens of which slots the next step has."""
        room, plan = self._limits.max_tokens, []
        for slot, first in done.items():
            if count := min(room, lengths[slot] - first):
                plan.append((slot, range(first, first + count)))
                room -= count
        return plan

    def _write(self, rows: range, slot: int, tokens: Sequence[int], places: range) -> None:
        """Write tokens of a sequence into the arrays of the step."""
        arrays, at = self._arrays, slice(rows.start, rows.stop)
        arrays["tokens"][at], arrays["positions"][at], arrays["slots"][at] = tokens, places, slot
        if self._names_states:
            arrays["state_before"][at] = arrays["state_after"][at] = slot

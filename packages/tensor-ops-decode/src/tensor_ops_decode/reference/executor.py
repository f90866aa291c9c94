"""Computes the steps of a program with the NumPy meaning of its nodes.

It computes token after token, so that a token's results do not depend on what else is in a step.
Its interface to callers is in ``driver.py``.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensor_ops_decode.kinds.cache_types import rounded
from tensor_ops_decode.kinds.kind import Array, Call, Kind, Weight
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Cache, Node, Program, State
from tensor_ops_decode.program.records import PER_EDIT, PER_REQUEST
from tensor_ops_decode.program.step_rules import check_tensors
from tensor_ops_decode.ranks.group import RankGroup
from tensor_ops_decode.reference.memory import new_arrays, shapes_of_cache
from tensor_ops_decode.weights.formats import FORMATS

__all__ = ["ReferenceExecutor"]

# Called with the number of a node, a token and the result for it.
Note = Callable[[int, int, Array], None]


class _Prepared(NamedTuple):
    """A node with all that is the same whenever it is computed."""

    node: Node
    kind: Kind
    weights: dict[str, Array]
    cache: Cache | State | None
    outputs: list[str]  # values of the program
    given_out: set[str]  # those of them that the program gives out
    is_selected: bool  # whether it is computed for selected tokens only


class ReferenceExecutor:
    """Takes the steps that are in its arrays, which have been checked."""

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Array],
        dtype: np.dtype[Any],
        progress: Callable[[int, int], None] | None,
        ranks: RankGroup | None,
    ) -> None:
        self._program, self._dtype = program, dtype
        self._nodes = list(map(self._prepared, program.nodes, self._converted(tensors, progress)))
        self._among_ranks: dict[str, Any] = {} if ranks is None else _exchange_of(ranks)
        # Keys and values, or a state.
        self._caches = {
            name: [np.zeros(*each) for each in shapes_of_cache(program.limits, cache, dtype)]
            for name, cache in program.caches.items()
        }
        self.arrays = new_arrays(program)
        # Those that the last step has changed, as they were before it: by node and number.
        self._states_before: dict[tuple[str, int], Array] = {}
        self._seconds = np.zeros(len(program.nodes))  # of each node, in all steps since a profile

    def take_step(self, num_tokens: int, num_selected: int, *, is_draft: bool = False) -> None:
        """Take one step, or draft step, of what is in the arrays."""
        if is_draft:  # which changes no state
            self._take_step(num_tokens, num_selected, lambda index, token, result: None, is_draft)
            return
        changed = {self._state("state_after", token) for token in range(num_tokens)}
        self._states_before = {
            (name, number): self._caches[name][0][number].copy()
            for name, cache in self._program.caches.items()
            if isinstance(cache, State)
            for number in changed
        }
        self._take_step(num_tokens, num_selected, lambda index, token, result: None)

    def first_nan(self, num_tokens: int, num_selected: int, slot: int) -> int | None:
        """Take the step again; return the first node whose result has NaN in a row of a slot."""
        found: set[int] = set()

        def note(index: int, token: int, result: Array) -> None:
            if self.arrays["slots"][token] == slot and np.isnan(result).any():
                found.add(index)

        for (name, number), state in self._states_before.items():
            self._caches[name][0][number] = state
        self._take_step(num_tokens, num_selected, note)
        return min(found, default=None)

    def profile(self, num_tokens: int, num_selected: int) -> dict[str, Any]:
        """Take one step; return how long each node took."""
        self._seconds[:] = 0
        self.take_step(num_tokens, num_selected)
        work = self._seconds[np.newaxis].copy()
        return {"seconds": float(work.sum()), "work": work, "wait": np.zeros_like(work)}

    def read_bandwidth(self) -> float:
        """Return the bytes per second at which NumPy reads the weights without computing."""
        arrays = {id(each): each for node in self._nodes for each in node.weights.values()}
        start = time.perf_counter()
        for each in arrays.values():
            np.bitwise_or.reduce(each.reshape(-1).view(np.uint32))
        size: int = sum(each.nbytes for each in arrays.values())
        return size / (time.perf_counter() - start)

    def read_pages(self, pages: Sequence[int]) -> Array:
        """Return what pages of the caches hold, a row of bytes for each."""
        return np.stack([np.concatenate(self._parts("page", page)) for page in pages])

    def write_pages(self, pages: Sequence[int], rows: Array) -> None:
        """Give pages of the caches what others held."""
        for page, row in zip(pages, rows.reshape(len(pages), -1), strict=True):
            self._write(self._parts("page", page), row)

    def read_state(self, state: int) -> Array:
        """Return what a state of all nodes holds, as a row of bytes."""
        return np.concatenate(self._parts("state", state))[np.newaxis]

    def write_state(self, state: int, row: Array) -> None:
        """Give a state of all nodes what another one held."""
        self._write(self._parts("state", state), row.reshape(-1))

    def _parts(self, what: str, number: int) -> list[Array]:
        """Return the bytes of a page, or of a state, in each of the arrays that have a part."""
        limits = self._program.limits
        end = limits.num_states if what == "state" else limits.num_pages
        if not 0 <= number < end:
            raise ValueError(f"a {what} must be from 0 to {end - 1}, got {number}")
        return [
            array[number].reshape(-1).view(np.uint8)
            for name, cache in self._program.caches.items()
            if (what == "state" if isinstance(cache, State) else what == "page" and cache.paged)
            for array in self._caches[name]
        ]

    def _write(self, parts: Sequence[Array], row: Array) -> None:
        size = sum(part.size for part in parts)
        if row.dtype != np.uint8 or row.size != size:
            raise ValueError(f"expected {size} bytes as uint8, got {row.size} of {row.dtype}")
        begin = 0
        for part in parts:
            part[:] = row[begin : begin + part.size]
            begin += part.size

    def _take_step(
        self, num_tokens: int, num_selected: int, note: Note, is_draft: bool = False
    ) -> None:
        rows = {int(token): row for row, token in enumerate(self.arrays["selected"][:num_selected])}
        for token in range(num_tokens):
            self._take_token(token, rows.get(token), note, is_draft)

    def _take_token(self, token: int, selected: int | None, note: Note, is_draft: bool) -> None:
        program = self._program
        values: dict[str, Array] = {"tokens": self.arrays["tokens"][token : token + 1]}
        nodes = range(program.num_step_nodes)
        if is_draft and program.draft is not None:
            hidden = program.draft.hidden
            values[hidden] = self.arrays[hidden][token].astype(self._dtype, copy=False)
            nodes = range(program.num_step_nodes, len(program.nodes))
        slot, position = (int(self.arrays[name][token]) for name in ("slots", "positions"))
        for index in nodes:
            each = self._nodes[index]
            row = selected if each.is_selected else token
            if row is None:
                continue
            start = time.perf_counter()
            written = each.kind.compute(self._call(each, values, token, slot, position))
            results = (written,) if len(each.outputs) == 1 else written
            for name, value in zip(each.outputs, results, strict=True):
                values[name] = value
                if name in each.given_out:
                    self.arrays[name][row] = value
                note(index, token, value)
            self._seconds[index] += time.perf_counter() - start

    def _prepared(self, node: Node, weights: dict[str, Array]) -> _Prepared:
        kind, program = KINDS[node.kind], self._program
        outputs = [node.outputs[slot.name] for slot in kind.outputs]
        return _Prepared(
            node,
            kind,
            weights,
            program.caches[node.attributes["cache"]] if kind.cache is not None else None,
            outputs,
            set(program.outputs).intersection(outputs),
            program.values[outputs[0]].rows != "tokens",
        )

    def _call(
        self, prepared: _Prepared, values: dict[str, Array], token: int, slot: int, position: int
    ) -> Call:
        node, kind, cache = prepared.node, prepared.kind, prepared.cache
        store = stored = state = keep = None
        dtype = "float32"
        if isinstance(cache, Cache):
            dtype = cache.dtype
            functions = self._storing(node.attributes["cache"], cache, slot, position)
            store, stored = functions if kind.writes_cache else (None, functions[1])
        elif isinstance(cache, State):
            states = self._caches[node.attributes["cache"]][0]
            state = states[self._state("state_before", token)].copy()
            if position == 0:
                state[:] = 0
            keep = functools.partial(np.copyto, states[self._state("state_after", token)])
        return Call(
            {slot_name: values[name] for slot_name, name in node.inputs.items()},
            prepared.weights,
            node.attributes,
            position,
            store,
            stored,
            dtype,
            self._sampling(slot) if kind.draws else {},
            state,
            keep,
            **self._among_ranks,
        )

    def _state(self, when: str, token: int) -> int:
        """Return the number of the state that a token begins with or leaves."""
        given = int(self.arrays[when][token])
        return int(self.arrays["slots"][token]) if given < 0 else given

    def _sampling(self, slot: int) -> dict[str, Any]:
        by = {name: self.arrays[name][slot] for name in PER_REQUEST}
        return by | {name: self.arrays[name][slot, : by["num_edits"]] for name in PER_EDIT}

    def _storing(
        self, name: str, cache: Cache, slot: int, position: int
    ) -> tuple[Callable[[Array, Array], tuple[Array, Array]], Callable[[], tuple[Array, Array]]]:
        """Return functions that write to a cache and read a request's tokens, and that read."""
        limits = self._program.limits
        size = limits.page_size
        # Pages before all windows may be missing; whatever is read in their place is not used.
        pages: Any = self.arrays["page_table"][slot, : position // size + 1]
        pages = np.clip(pages, 0, limits.num_pages - 1)
        if not cache.paged:
            size, pages = limits.max_seq_length, [slot]

        def stored() -> tuple[Array, Array]:
            keys, values = (
                memory[pages].reshape(-1, *memory.shape[2:])[: position + 1]
                for memory in self._caches[name]
            )
            return keys.astype(self._dtype, copy=False), values.astype(self._dtype, copy=False)

        def store(key: Array, value: Array) -> tuple[Array, Array]:
            for memory, new in zip(self._caches[name], (key, value), strict=True):
                memory[pages[-1], position % size] = rounded(cache.dtype, new)
            return stored()

        return store, stored

    def _converted(
        self, tensors: Mapping[str, Array], progress: Callable[[int, int], None] | None
    ) -> list[dict[str, Array]]:
        """Return the weights of each node in floating point; a tensor that two use is one array."""
        program = self._program
        names = {
            name for node in program.nodes for names in node.weights.values() for name in names
        }
        tensors = {name: tensors[name] for name in names if name in tensors}  # which takes time
        check_tensors(program, tensors, names)
        done, size = 0, sum(each.nbytes for each in tensors.values())
        single: dict[str, Array] = {}
        for name in sorted(names):
            tensor = program.tensors[name]
            rows = tensors[name].reshape(-1).view(np.uint8).reshape(*tensor.shape[:-1], -1)
            floats = FORMATS[tensor.type].dequantize(rows, tensor.shape[-1])
            single[name] = floats.astype(self._dtype, copy=False)
            done += tensors[name].nbytes
            if progress is not None:
                progress(done, size)

        return [
            {
                slot.name: _joined(node, slot, [single[name] for name in node.weights[slot.name]])
                for slot in KINDS[node.kind].weights
                if slot.name in node.weights
            }
            for node in program.nodes
        ]


def _joined(node: Node, slot: Weight, parts: list[Array]) -> Array:
    """Return the tensors of a slot as one array."""
    if slot.form == "stack":
        count = KINDS[node.kind].num_planes(slot, node.attributes, parts[0].shape)
        planes = [plane for part in parts for plane in part.reshape(-1, *part.shape[-2:])]
        if len(parts) > 1:
            firsts = range(0, len(planes), count)
            parts = [np.stack(planes[first : first + count]) for first in firsts]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=slot.axis)


def _exchange_of(ranks: RankGroup) -> dict[str, Any]:
    """Return the arguments of a `Call` that let a node exchange values among ranks."""

    def exchange(x: Array) -> Array:
        received = np.empty((ranks.world_size, len(x)), x.dtype)
        ranks.exchange(np.ascontiguousarray(x), received)
        return received

    return {"num_ranks": ranks.world_size, "exchange": exchange}

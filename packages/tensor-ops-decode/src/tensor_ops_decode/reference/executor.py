"""Runs programs with the NumPy meaning of their nodes: the executor of the backend ``python``.

It computes token after token, so that a token's results do not depend on what else is in a step.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.kinds.cache_types import rounded
from tensor_ops_decode.kinds.kind import Array, Call
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Cache, Node, Program, State
from tensor_ops_decode.program.records import PER_EDIT, PER_REQUEST
from tensor_ops_decode.program.step_rules import check_step, check_steps, check_tensors, vocabulary
from tensor_ops_decode.ranks.group import RankGroup
from tensor_ops_decode.reference.memory import memory_of, new_arrays, shapes_of_cache
from tensor_ops_decode.sharding.rank_rules import check_ranks
from tensor_ops_decode.weights.formats import FORMATS

__all__ = ["ReferenceExecutable", "compile_program", "program_memory", "supports_program"]

# The functions are given the same text one after another.
_parsed = functools.lru_cache(maxsize=1)(Program.from_json)


def supports_program(program: str) -> str | None:
    """Say why a program cannot run here, which every valid one can; None if it can."""
    try:
        _parsed(program)
    except ProgramError as error:
        return str(error)
    return None


def compile_program(
    program: str,
    tensors: Mapping[str, Array],
    *,
    num_workers: int | None = None,
    options: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
    ranks: RankGroup | None = None,
) -> ReferenceExecutable:
    """Return a program ready to run, its weights converted to floating point.

    Parameters
    ----------
    program : str
        JSON.
    tensors : mapping of str to ndarray
        By name, as they are in the file.
    num_workers : int, optional
        Of no effect: NumPy has its own threads.
    options : mapping, optional
        ``dtype``: ``"float32"`` or ``"float64"``.
    progress : callable, optional
        Called with the bytes of weights that are done, and of all.
    ranks : RankGroup, optional
        The ranks that run the shards of the program together; without it, there is one.

    Raises
    ------
    ProgramError
        If the program is not the shard of its rank.
    """
    parsed = _parsed(program)
    check_ranks(parsed, *((0, 1) if ranks is None else (ranks.rank, ranks.world_size)))
    return ReferenceExecutable(parsed, tensors, _checked(options), progress, ranks)


def program_memory(
    program: str,
    *,
    num_workers: int | None = None,
    options: Mapping[str, object] | None = None,
    ranks: RankGroup | None = None,
) -> dict[str, int]:
    """Return the bytes of what an executable of a program takes, without making one.

    Parameters
    ----------
    program : str
        JSON.
    num_workers, options, ranks
        As `compile_program` takes them.
    """
    return memory_of(_parsed(program), np.dtype(_checked(options)["dtype"]))


class ReferenceExecutable:
    """A compiled program of the backend ``python``.

    Attributes
    ----------
    arrays : dict of str to ndarray
        What a step reads and writes.
    options : dict
    memory : dict of str to int
        Bytes by what takes them.
    num_workers : int
    """

    num_workers = 1

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Array],
        options: Mapping[str, Any],
        progress: Callable[[int, int], None] | None,
        ranks: RankGroup | None = None,
    ) -> None:
        self.options, self._ranks = dict(options), ranks
        self._dtype = np.dtype(options["dtype"])
        self._program: Program | None = program
        self._weights = self._converted(program, tensors, progress)
        # Keys and values, or a state.
        self._caches = {
            name: [np.zeros(*each) for each in shapes_of_cache(program.limits, cache, self._dtype)]
            for name, cache in program.caches.items()
        }
        self.arrays = new_arrays(program)
        self._states_before: dict[str, Array] = {}  # the last step
        self._seconds = np.zeros(len(program.nodes))  # of each node, in all steps since a profile
        self.memory = memory_of(program, self._dtype)

    def run(self, num_tokens: int, num_selected: int) -> None:
        """Run one step of `num_tokens` tokens; for `num_selected` of them there are logits."""
        self._states_before = {
            name: self._caches[name][0].copy()
            for name, cache in self._open().caches.items()
            if isinstance(cache, State)
        }
        self._run(num_tokens, num_selected, lambda index, token, result: None)

    def run_steps(
        self,
        num_tokens: int,
        num_steps: int,
        output: str,
        end_tokens: Sequence[Sequence[int]],
    ) -> Array:
        """Run steps in a row: each is fed the tokens that the one before wrote to `output`.

        Parameters
        ----------
        num_tokens : int
            Each of another slot, and all selected.
        num_steps : int
            The most steps.
        output : str
            Where a step writes the tokens that it chooses.
        end_tokens : sequence of sequence of int
            For each of the tokens, those after which a step is the last.

        Returns
        -------
        ndarray of int32, shape (steps, num_tokens)
            What each step chose.
        """
        program, chosen = self._open(), list[Array]()
        check_steps(program, self.arrays, num_tokens, num_steps, output, end_tokens)
        words = vocabulary(program)
        while True:
            self.run(num_tokens, num_tokens)
            chosen.append(self.arrays[output][:num_tokens, 0].copy())
            pairs = list(zip(chosen[-1].tolist(), end_tokens, strict=True))
            is_last = any(token in ends or not 0 <= token < words for token, ends in pairs)
            if is_last or len(chosen) == num_steps:
                return np.stack(chosen)
            self.arrays["tokens"][:num_tokens] = chosen[-1]
            self.arrays["positions"][:num_tokens] += 1

    def first_nan(self, num_tokens: int, num_selected: int, slot: int) -> int | None:
        """Run a step again, and return the first node whose result has NaN in a row of a slot.

        Parameters
        ----------
        num_tokens, num_selected : int
            Of the step that is in the arrays: what it writes is there already.
        slot : int

        Returns
        -------
        int or None
            The number of the node; None if no result has NaN.
        """
        found: set[int] = set()

        def note(index: int, token: int, result: Array) -> None:
            if self.arrays["slots"][token] == slot and np.isnan(result).any():
                found.add(index)

        for name, state in self._states_before.items():
            np.copyto(self._caches[name][0], state)
        self._run(num_tokens, num_selected, note)
        return min(found, default=None)

    def profile(self, num_tokens: int, num_selected: int) -> dict[str, Any]:
        """Run one step, and return how long each node took, as `StepProfile` says."""
        self._seconds[:] = 0
        self.run(num_tokens, num_selected)
        work = self._seconds[np.newaxis].copy()
        return {"seconds": float(work.sum()), "work": work, "wait": np.zeros_like(work)}

    def read_bandwidth(self) -> float:
        """Return the bytes per second at which NumPy reads the weights without computing."""
        self._open()
        arrays = {id(each): each for slots in self._weights for each in slots.values()}
        start = time.perf_counter()
        for each in arrays.values():
            np.bitwise_or.reduce(each.reshape(-1).view(np.uint32))
        size: int = sum(each.nbytes for each in arrays.values())
        return size / (time.perf_counter() - start)

    def close(self) -> None:
        """Free the memory; a step after that is an error."""
        self._program, self._weights, self.arrays = None, [], {}
        self._caches = {}

    def _run(
        self, num_tokens: int, num_selected: int, note: Callable[[int, int, Array], None]
    ) -> None:
        """Run one step; `note` is called with each node's number, a token and the result for it."""
        program = self._open()
        check_step(program, self.arrays, num_tokens, num_selected)
        rows = {int(token): row for row, token in enumerate(self.arrays["selected"][:num_selected])}
        for token in range(num_tokens):
            self._run_token(program, token, rows.get(token), note)

    def _run_token(
        self,
        program: Program,
        token: int,
        selected: int | None,
        note: Callable[[int, int, Array], None],
    ) -> None:
        values: dict[str, Array] = {"tokens": self.arrays["tokens"][token : token + 1]}
        nodes = zip(program.nodes, self._weights, strict=True)
        for index, (node, weights) in enumerate(nodes):
            start = time.perf_counter()
            names = [node.outputs[slot.name] for slot in KINDS[node.kind].outputs]
            row = token if program.values[names[0]].rows == "tokens" else selected
            if row is None:
                continue
            written = KINDS[node.kind].compute(self._call(program, node, weights, values, token))
            for name, value in zip(names, (written,) if len(names) == 1 else written, strict=True):
                values[name] = value
                if name in program.outputs:
                    self.arrays[name][row] = value
                note(index, token, value)
            self._seconds[index] += time.perf_counter() - start

    def _call(
        self,
        program: Program,
        node: Node,
        weights: dict[str, Array],
        values: dict[str, Array],
        token: int,
    ) -> Call:
        slot, position = (int(self.arrays[name][token]) for name in ("slots", "positions"))
        kind = KINDS[node.kind]
        cache = program.caches[node.attributes["cache"]] if kind.cache is not None else None
        store = state = keep = None
        dtype = "float32"
        if isinstance(cache, Cache):
            dtype = cache.dtype
            store = self._storing(program, node.attributes["cache"], cache, slot, position)
        elif isinstance(cache, State):
            kept = self._caches[node.attributes["cache"]][0][slot]
            state = kept.copy() if position else np.zeros_like(kept)
            keep = functools.partial(np.copyto, kept)
        return Call(
            {slot_name: values[name] for slot_name, name in node.inputs.items()},
            weights,
            node.attributes,
            position,
            store,
            dtype,
            self._sampling(slot) if kind.draws else {},
            state,
            keep,
            **self._among_ranks(),
        )

    def _among_ranks(self) -> dict[str, Any]:
        ranks = self._ranks
        if ranks is None:
            return {}

        def exchange(x: Array) -> Array:
            received = np.empty((ranks.world_size, len(x)), x.dtype)
            ranks.exchange(np.ascontiguousarray(x), received)
            return received

        return {"num_ranks": ranks.world_size, "exchange": exchange}

    def _sampling(self, slot: int) -> dict[str, Any]:
        by = {name: self.arrays[name][slot] for name in PER_REQUEST}
        return by | {name: self.arrays[name][slot, : by["num_edits"]] for name in PER_EDIT}

    def _storing(
        self, program: Program, name: str, cache: Cache, slot: int, position: int
    ) -> Callable[[Array, Array], tuple[Array, Array]]:
        """Return the function that writes to a cache and reads a request's tokens from it."""
        size = program.limits.page_size
        # Pages before all windows may be missing; whatever is read in their place is not used.
        pages: Any = self.arrays["page_table"][slot, : position // size + 1]
        pages = np.clip(pages, 0, program.limits.num_pages - 1)
        if not cache.paged:
            size, pages = program.limits.max_seq_length, [slot]

        def store(key: Array, value: Array) -> tuple[Array, Array]:
            both = []
            for memory, new in zip(self._caches[name], (key, value), strict=True):
                memory[pages[-1], position % size] = rounded(cache.dtype, new)
                kept = memory[pages].reshape(-1, *new.shape)[: position + 1]
                both.append(kept.astype(self._dtype, copy=False))
            return both[0], both[1]

        return store

    def _converted(
        self,
        program: Program,
        tensors: Mapping[str, Array],
        progress: Callable[[int, int], None] | None,
    ) -> list[dict[str, Array]]:
        """Return the weights of each node in floating point; a tensor that two use is one array."""
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

        def joined(names: tuple[str, ...]) -> Array:
            parts = [single[name] for name in names]
            return parts[0] if len(parts) == 1 else np.concatenate(parts)

        return [
            {slot: joined(names) for slot, names in node.weights.items()} for node in program.nodes
        ]

    def _open(self) -> Program:
        if self._program is None:
            raise RuntimeError("the executable is closed; compile the program again")
        return self._program


def _checked(options: Mapping[str, object] | None) -> dict[str, Any]:
    """Return the options of an executable, with the default of what is not given."""
    options = {"dtype": "float32", **(options or {})}
    for name in options:
        if name != "dtype":
            raise ValueError(
                f"the backend 'python' has no option {name!r}, and rounds nothing that it computes "
                "in 'float32'; leave it out"
            )
    if options["dtype"] not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {options['dtype']!r}")
    return options

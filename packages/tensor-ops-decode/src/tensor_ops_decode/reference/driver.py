"""The executables of the backend ``python``: they check steps, and run several in a row.

``executor.py`` computes them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program import Program
from tensor_ops_decode.program.step_rules import check_step, check_steps, vocabulary
from tensor_ops_decode.ranks.group import RankGroup
from tensor_ops_decode.reference.executor import ReferenceExecutor
from tensor_ops_decode.reference.memory import memory_of

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
    """Return a program in JSON ready to run, its weights converted to floating point.

    `num_workers` has no effect, as NumPy has its own threads. The option ``dtype`` is ``"float32"``
    or ``"float64"``. `progress` is called with the bytes of weights that are done, and of all. With
    `ranks`, it is a ProgramError if the program is not the shard of its rank.
    """
    parsed = _parsed(program)
    _check_ranks(parsed, *((0, 1) if ranks is None else (ranks.rank, ranks.world_size)))
    return ReferenceExecutable(parsed, tensors, _checked_options(options), progress, ranks)


def program_memory(
    program: str,
    *,
    num_workers: int | None = None,
    options: Mapping[str, object] | None = None,
    ranks: RankGroup | None = None,
) -> dict[str, int]:
    """Return the bytes of what an executable of a program takes, without making one."""
    return memory_of(_parsed(program), np.dtype(_checked_options(options)["dtype"]))


class ReferenceExecutable:
    """A compiled program of the backend ``python``.

    Its methods are those of the contract for executors in ``docs/guides/decode_programs.md``.
    """

    num_workers = 1

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Array],
        options: Mapping[str, Any],
        progress: Callable[[int, int], None] | None,
        ranks: RankGroup | None,
    ) -> None:
        self._program, self.options = program, dict(options)
        dtype = np.dtype(options["dtype"])
        executor = ReferenceExecutor(program, tensors, dtype, progress, ranks)
        self._executor: ReferenceExecutor | None = executor  # None once closed
        self.arrays = executor.arrays
        self.memory = memory_of(program, dtype)

    def run(self, num_tokens: int, num_selected: int) -> None:
        """Run one step of `num_tokens` tokens; for `num_selected` of them there are logits."""
        self._checked(num_tokens, num_selected).take_step(num_tokens, num_selected)

    def run_draft(self, num_tokens: int, num_selected: int) -> None:
        """Run one draft step of `num_tokens` tokens; for `num_selected` of them there are guesses.

        It reads what the step before it has left in the output `hidden` of the draft.
        """
        if self._program.draft is None:
            raise ValueError("run_draft: the program has no draft")
        executor = self._checked(num_tokens, num_selected)
        executor.take_step(num_tokens, num_selected, is_draft=True)

    def run_steps(
        self,
        num_tokens: int,
        num_steps: int,
        output: str,
        end_tokens: Sequence[Sequence[int]],
    ) -> Array:
        """Run steps that are fed what `output` of the one before has; return what each chose."""
        executor, chosen = self._open(), list[Array]()
        check_steps(self._program, self.arrays, num_tokens, num_steps, output, end_tokens)
        words = vocabulary(self._program)
        while True:
            executor.take_step(num_tokens, num_tokens)
            chosen.append(self.arrays[output][:num_tokens, 0].copy())
            pairs = list(zip(chosen[-1].tolist(), end_tokens, strict=True))
            is_last = any(token in ends or not 0 <= token < words for token, ends in pairs)
            if is_last or len(chosen) == num_steps:
                return np.stack(chosen)
            self.arrays["tokens"][:num_tokens] = chosen[-1]
            self.arrays["positions"][:num_tokens] += 1
            self.arrays["state_before"][:num_tokens] = self.arrays["state_after"][:num_tokens]

    def first_nan(self, num_tokens: int, num_selected: int, slot: int) -> int | None:
        """Run the step again; return the first node whose result has NaN in a row of a slot."""
        executor = self._checked(num_tokens, num_selected)
        return executor.first_nan(num_tokens, num_selected, slot)

    def profile(self, num_tokens: int, num_selected: int) -> dict[str, Any]:
        """Run one step, and return how long each node took, as `StepProfile` says."""
        return self._checked(num_tokens, num_selected).profile(num_tokens, num_selected)

    def read_bandwidth(self) -> float:
        """Return the bytes per second at which NumPy reads the weights without computing."""
        return self._open().read_bandwidth()

    def read_pages(self, pages: Sequence[int]) -> Array:
        """Return what pages of the caches hold, a row of bytes for each."""
        return self._open().read_pages(pages)

    def write_pages(self, pages: Sequence[int], rows: Array) -> None:
        """Give pages of the caches what others held."""
        self._open().write_pages(pages, rows)

    def read_state(self, state: int) -> Array:
        """Return what a state of all nodes holds, as a row of bytes."""
        return self._open().read_state(state)

    def write_state(self, state: int, row: Array) -> None:
        """Give a state of all nodes what another one held."""
        self._open().write_state(state, row)

    def close(self) -> None:
        """Free the memory; a step after that is an error."""
        self._executor, self.arrays = None, {}

    def _checked(self, num_tokens: int, num_selected: int) -> ReferenceExecutor:
        """Return what takes the step in the arrays, which it can."""
        executor = self._open()
        check_step(self._program, self.arrays, num_tokens, num_selected)
        return executor

    def _open(self) -> ReferenceExecutor:
        if self._executor is None:
            raise RuntimeError("the executable is closed; compile the program again")
        return self._executor


def _checked_options(options: Mapping[str, object] | None) -> dict[str, Any]:
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


def _check_ranks(program: Program, rank: int, world_size: int) -> None:
    """Raise a ProgramError unless every allgather has the columns of this rank."""
    for node in program.nodes:
        if node.kind != "allgather":
            continue
        columns = node.attributes["num_columns"]
        expected = columns * (rank + 1) // world_size - columns * rank // world_size
        given = program.values[node.inputs["x"]].columns
        if given != expected:
            raise ProgramError(
                f"allgather {node.name!r}: x must have {expected} columns on rank {rank} of "
                f"{world_size}, got {given}"
            )

"""The longest sequences that a machine has memory for, by what the executor of a program takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tensor_ops.extension import machine
from tensor_ops_decode.executors.choice import Executor, ExecutorChoice
from tensor_ops_decode.program import Cache, Limits, Program, State
from tensor_ops_decode.weights.formats import FORMATS

__all__ = [
    "DEFAULT_SEQ_LENGTH",
    "PlannedProgram",
    "cache_bytes",
    "planned_program",
    "program_that_fits",
    "require_bytes",
]

#: The longest sequence where neither the caller nor the model asks for a shorter one.
DEFAULT_SEQ_LENGTH = 2048

_EDIT = 12  # bytes of a token, a bias and a penalty
# More positions than this are had on request only, whatever a file claims: a small model leaves
# memory for billions, of which each takes time for its rotary tables.
_MOST_BY_DEFAULT = 2**20


@dataclass(frozen=True)
class PlannedProgram:
    """A program, the executor that was chosen for it, and the memory that it takes.

    Attributes
    ----------
    program : Program
    text : str
        The same as JSON.
    executor : Executor
    num_workers : int or None
        As ``compile_program`` of an executor takes them.
    """

    program: Program
    text: str
    executor: Executor
    num_workers: int | None

    def require_memory(self, options: Mapping[str, object] | None = None) -> None:
        """Raise a MemoryError if more is needed than the process may have, with these options."""
        needed = self._memory(options) if options else self.memory
        require_bytes(self.program.limits, needed)

    @cached_property
    def memory(self) -> dict[str, int]:
        """The bytes of what it takes without options, by what takes them.

        The executor that will hold it says so, by ``program_memory``. For one without that function
        it is what any executor needs: the weights as they are stored, caches, tables and arrays.

        Raises
        ------
        MemoryError
            If the size of something is more than any memory.
        """
        return self._memory(None)

    def _memory(self, options: Mapping[str, object] | None) -> dict[str, int]:
        module = self.executor.module
        if not hasattr(module, "program_memory"):
            return _least_memory(self.program)
        needed: dict[str, int] = module.program_memory(
            self.text, num_workers=self.num_workers, options=options
        )
        return needed

    @property
    def total(self) -> float:
        """The bytes of all that it takes; infinite if that is more than any memory."""
        try:
            return sum(self.memory.values())
        except MemoryError:
            return math.inf


def planned_program(
    program: Program, choice: ExecutorChoice, num_workers: int | None
) -> PlannedProgram:
    """Return a program with the executor that is chosen for it."""
    text = program.to_json()
    return PlannedProgram(program, text, choice.executor(text), num_workers)


def program_that_fits(
    limits: Callable[[int | None], Limits],
    planned: Callable[[Limits], PlannedProgram],
    context: int,
    length: int | None,
    max_num_pages: int | None,
) -> tuple[PlannedProgram, str]:
    """Return a model's program, and what decided on its longest sequence.

    Without a length, it is the longest that model and memory have room for, up to 2**20: caches may
    take half of the memory that the weights leave. Requests share that half where they cannot all
    be so long.

    Parameters
    ----------
    limits : callable
        Returns the limits for a length, with all pages that the requests may need.
    planned : callable
        Returns the program for limits.
    context : int
        The longest sequence of the model.
    length, max_num_pages : int or None
        What the caller asks for.
    """
    made = planned(limits(context if length is None else length))
    bounds = made.program.limits
    num_pages = _pages_that_fit(made, planned)
    decided_by = "max_seq_length"
    if length is None:
        most = DEFAULT_SEQ_LENGTH if num_pages is None else num_pages * bounds.page_size
        reason = "the default" if num_pages is None or most > _MOST_BY_DEFAULT else "memory"
        most = min(most, _MOST_BY_DEFAULT)
        length, decided_by = (context, "the model") if context <= most else (most, reason)
        bounds = limits(length)
    if max_num_pages is None and num_pages is not None:
        most = max(num_pages, bounds.pages_per_request)
        bounds = replace(bounds, num_pages=min(bounds.num_pages, most))
    return made if made.program.limits == bounds else planned(bounds), decided_by


def _least_memory(program: Program) -> dict[str, int]:
    limits, weights, tables = program.limits, 0, 0
    for tensor in program.tensors.values():
        size = math.prod(tensor.shape[:-1]) * FORMATS[tensor.type].row_bytes(tensor.shape[-1])
        if "rotary" in tensor.source:
            tables += size
        else:
            weights += size
    caches = sum(cache_bytes(limits, each) for each in program.caches.values())
    arrays = limits.max_requests * (4 * limits.pages_per_request + _EDIT * limits.edits_per_request)
    for name in program.outputs:
        value = program.values[name]
        rows = limits.max_tokens if value.rows == "tokens" else limits.max_selected
        arrays += 4 * rows * value.columns
    return {"weights": weights, "caches": caches, "rotary tables": tables, "arrays": arrays}


def cache_bytes(limits: Limits, cache: Cache | State) -> int:
    """Return the bytes of what one node keeps between steps."""
    if isinstance(cache, State):
        return 4 * limits.max_requests * cache.rows * cache.columns
    contiguous = limits.max_requests * limits.max_seq_length
    positions = limits.num_pages * limits.page_size if cache.paged else contiguous
    return positions * cache.bytes_per_token


def require_bytes(limits: Limits, needed: Mapping[str, int]) -> None:
    """Raise a MemoryError if more bytes are needed than the process may have."""
    allowed, total = machine.usable_memory(), sum(needed.values())
    if allowed is not None and total > allowed:
        parts = ", ".join(f"{what} {size}" for what, size in needed.items())
        raise MemoryError(
            f"the program needs at least {total} bytes ({parts}), and the process may have "
            f"{allowed}; max_seq_length is {limits.max_seq_length} and there are "
            f"{limits.num_pages} pages of {limits.page_size} tokens: give a smaller "
            "max_seq_length, max_num_pages or max_num_batched_requests"
        )


def _pages_that_fit(
    made: PlannedProgram, planned: Callable[[Limits], PlannedProgram]
) -> int | None:
    """Return how many pages half of the memory has room for that a program without pages leaves.

    Where all pages of the given program fit, it is at least their number.
    """
    allowed, bounds = machine.usable_memory(), made.program.limits
    if allowed is None or not made.program.caches:
        return None
    pages = max(bounds.num_pages, bounds.pages_per_request)
    if pages == bounds.num_pages and 2 * made.total <= allowed:
        return pages
    # What a page takes, with the longer tables and the other logits that may be changed of a longer
    # sequence: the mean of as many as one request needs.
    pages = -(-min(bounds.max_seq_length, _MOST_BY_DEFAULT) // bounds.page_size)
    length = min(pages * bounds.page_size, bounds.max_seq_length)
    first = planned(replace(bounds, max_seq_length=1, num_pages=1)).total
    more = planned(replace(bounds, max_seq_length=length, num_pages=1 + pages)).total
    if math.isinf(more):
        return 1
    page = max(1, int(more - first) // pages)
    return max(1, (allowed - int(first) + page) // 2 // page)

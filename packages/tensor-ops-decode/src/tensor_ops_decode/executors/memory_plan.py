"""A program with its executor and what it takes of the memory, before anything is allocated."""

from collections.abc import Mapping
from functools import cached_property

from tensor_ops.extension import CPU, load_backend, machine
from tensor_ops_decode.executors.choice import Executor, ExecutorChoice
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Cache, Limits, Program, State
from tensor_ops_decode.ranks.communicator import Communicator, PlannedRank
from tensor_ops_decode.sharding.rank_shares import RankShares
from tensor_ops_decode.sharding.shard import shard

__all__ = ["PlannedProgram", "cache_bytes", "require_bytes"]

_EDIT = 12  # bytes of a token, a bias and a penalty


class PlannedProgram:
    """A program, the executor that is chosen for it, and the memory that it takes.

    The program is that of this rank: its shard of the `whole` one, unless the layers are those of a
    rank already. With a `rank`, the memory of another one is planned.
    """

    def __init__(
        self,
        whole: Program,
        choice: ExecutorChoice,
        num_workers: int | None,
        ranks: Communicator,
        rank: int | None = None,
    ) -> None:
        self.whole, self.program, self.ranks = whole, whole, ranks
        self._choice, self._num_workers = choice, num_workers
        self._rank = ranks.rank if rank is None else rank
        if ranks.world_size > 1 and not self.is_by_rank:
            self.program = shard(whole, self._rank, ranks.world_size)

    @property
    def is_by_rank(self) -> bool:
        """Whether the whole exchanges values already: its layers are those of one rank."""
        return any(KINDS[node.kind].exchanges for node in self.whole.nodes)

    @property
    def shares(self) -> RankShares | None:
        """The reads of each rank; None of one alone, and of layers that are those of one rank."""
        if self.ranks.world_size == 1 or self.is_by_rank:
            return None
        return RankShares.of(self.whole, self.ranks.rank, self.ranks.world_size)

    @property
    def num_workers(self) -> int | None:
        """The number of workers, None for as many as the executor takes by itself.

        Ranks of one machine share its processors.
        """
        if self._num_workers is not None or self.ranks.world_size == 1:
            return self._num_workers
        if load_backend(self.executor.backend).kind != CPU:
            return None
        return max(1, machine.usable_cpus() // self.ranks.num_sharing)

    @cached_property
    def text(self) -> str:
        """The program as JSON."""
        return self.program.to_json()

    @cached_property
    def executor(self) -> Executor:
        """The executor that runs the program."""
        return self._choice.executor(self.text)

    @property
    def allowed(self) -> int | None:
        """The bytes that it may take: those of its executor's device, if it says so.

        Otherwise they are those that the process may have, None where that is not known; ranks of
        one machine have equal parts.
        """
        limit = getattr(self.executor.module, "program_memory_limit", None)
        if limit is not None:
            return int(limit())
        usable = machine.usable_memory()
        return None if usable is None else usable // self.ranks.num_here

    @property
    def pages_that_fit(self) -> int | None:
        """How many pages half of the memory has room for that the program leaves without pages.

        It is at least the number that the program has where all of these fit; None where the memory
        is not known. A page counts with what the positions of a longer sequence take beside it.
        """
        allowed, limits, least = self.allowed, self.program.limits, _least_memory(self.program)
        if allowed is None or not self.program.caches:
            return None
        try:
            needed = self.needed
        except MemoryError:  # more than any memory
            return 1
        total, caches = sum(needed.values()), needed.get("caches", least["caches"])
        of_request = _EDIT * limits.max_seq_length + 4 * limits.pages_per_request
        by_length = least["rotary tables"] + limits.max_requests * of_request
        page = caches // limits.num_pages + by_length // limits.pages_per_request
        pages = (allowed - total + caches + by_length) // 2 // page
        return max(pages, limits.num_pages if 2 * total <= allowed else 1)

    def snapshots_that_fit(self, most: int) -> int:
        """Return for how many snapshots there is room in a quarter of what the program leaves."""
        allowed, states = self.allowed, 0
        for cache in self.program.caches.values():
            states += cache_bytes(self.program.limits, cache) if isinstance(cache, State) else 0
        if allowed is None or not states:
            return most
        try:
            left = max(0, allowed - sum(self.needed.values()))
        except MemoryError:  # more than any memory
            return 0
        return min(most, left // 4 // (states // self.program.limits.num_states))

    def require_memory(self, options: Mapping[str, object] | None = None) -> None:
        """Raise a MemoryError if more is needed than there is, with these options."""
        has_limit = hasattr(self.executor.module, "program_memory_limit")
        owner = f"the device of {self.executor.backend!r}" if has_limit else "the process"
        needed = self._needed_with(options) if options else self.needed
        require_bytes(self.program.limits, needed, self.allowed, owner)

    @cached_property
    def needed(self) -> dict[str, int]:
        """The bytes of what it takes without options, by what takes them.

        The executor that will hold it says so, by ``program_memory``. For one without that function
        it is what any executor needs: the weights as they are stored, caches, tables and arrays. It
        is a MemoryError if that is more than any memory.
        """
        return self._needed_with(None)

    def _needed_with(self, options: Mapping[str, object] | None) -> dict[str, int]:
        module = self.executor.module
        if not hasattr(module, "program_memory"):
            return _least_memory(self.program)
        size = self.ranks.world_size
        among = {"ranks": PlannedRank(self._rank, size)} if size > 1 else {}
        needed: dict[str, int] = module.program_memory(
            self.text, num_workers=self.num_workers, options=options, **among
        )
        return needed


def _least_memory(program: Program) -> dict[str, int]:
    limits, weights, tables = program.limits, 0, 0
    for tensor in program.tensors.values():
        if "rotary" in tensor.source:
            tables += tensor.num_bytes
        else:
            weights += tensor.num_bytes
    caches = {"caches": 0}
    for each in program.caches.values():
        name = "states" if isinstance(each, State) else "caches"
        caches[name] = caches.get(name, 0) + cache_bytes(limits, each)
    arrays = limits.max_requests * (4 * limits.pages_per_request + _EDIT * limits.edits_per_request)
    for name in program.outputs:
        value = program.values[name]
        arrays += 4 * limits.rows(value.rows) * value.columns
    return {"weights": weights, **caches, "rotary tables": tables, "arrays": arrays}


def cache_bytes(limits: Limits, cache: Cache | State) -> int:
    """Return the bytes of what one node keeps between steps."""
    if isinstance(cache, State):
        return 4 * limits.num_states * cache.rows * cache.columns
    contiguous = limits.max_requests * limits.max_seq_length
    positions = limits.num_pages * limits.page_size if cache.paged else contiguous
    return positions * cache.bytes_per_token


def require_bytes(
    limits: Limits, needed: Mapping[str, int], allowed: int | None, owner: str = "the process"
) -> None:
    """Raise a MemoryError if more bytes are needed than are allowed, which may be unknown."""
    total = sum(needed.values())
    if allowed is not None and total > allowed:
        parts = ", ".join(f"{what} {size}" for what, size in needed.items())
        raise MemoryError(
            f"the program needs at least {total} bytes ({parts}), and {owner} may have "
            f"{allowed}; max_seq_length is {limits.max_seq_length} and there are "
            f"{limits.num_pages} pages of {limits.page_size} tokens: give a smaller "
            "max_seq_length, max_num_pages, max_num_batched_requests or max_num_snapshots"
        )

"""Which heads, rows and columns each of several ranks has: whole blocks, as equal as they allow.

Every part of a step ends with an exchange, for which the ranks wait, so that each part is divided
evenly for itself. Where one does not divide, the first ranks have more of the heads, and the last
ones more of the columns.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

__all__ = ["Division", "GatedColumns", "Heads", "LatentHeads", "Logits"]


class Division(ABC):
    """How at most so many ranks divide the rows of one product and the columns of another."""

    @property
    @abstractmethod
    def most(self) -> int: ...

    @abstractmethod
    def rows(self, rank: int, world_size: int) -> tuple[range, ...]:
        """Return the rows that a rank has of the first product."""

    @abstractmethod
    def columns(self, rank: int, world_size: int) -> range:
        """Return the columns that a rank has of what is divided."""


@dataclass(frozen=True)
class Heads(Division):
    """Heads of queries in groups, one group for each head of keys and values.

    A rank has whole groups, or with more ranks than groups some heads of one group. Heads are
    divided where their columns are a multiple of the `block` of the stored matrix whose columns
    they are.
    """

    num_heads: int
    num_kv_heads: int
    head_size: int
    block: int = 1

    @property
    def most(self) -> int:
        if self._groups_together > 1:
            return self.num_kv_heads // self._groups_together
        return self.num_kv_heads * (self._heads_per_group // self._heads_together)

    def heads(self, rank: int, world_size: int) -> range:
        """Return the heads of queries that a rank has.

        Examples
        --------
        >>> [Heads(9, 3, 64).heads(rank, 2) for rank in range(2)]
        [range(0, 6), range(6, 9)]
        >>> [len(Heads(9, 3, 64).heads(rank, 4)) for rank in range(4)]
        [2, 1, 3, 3]
        """
        groups, per_group = self.kv_heads(rank, world_size), self._heads_per_group
        if world_size <= self.num_kv_heads // self._groups_together:
            return _times(groups, per_group)
        first = _first_of(world_size, groups.start, self.num_kv_heads)  # rank of this group
        sharing = _first_of(world_size, groups.stop, self.num_kv_heads) - first
        together = self._heads_together
        units = _divided_from_first(per_group // together, rank - first, sharing)
        before = groups.start * per_group
        return range(before + units.start * together, before + units.stop * together)

    def kv_heads(self, rank: int, world_size: int) -> range:
        """Return the heads of keys and values that a rank has.

        Examples
        --------
        >>> [Heads(9, 3, 64).kv_heads(rank, 4) for rank in range(4)]
        [range(0, 1), range(0, 1), range(1, 2), range(2, 3)]
        """
        together = self._groups_together
        if world_size <= self.num_kv_heads // together:
            units = _divided_from_first(self.num_kv_heads // together, rank, world_size)
            return _times(units, together)
        group = rank * self.num_kv_heads // world_size
        return range(group, group + 1)

    def rows(self, rank: int, world_size: int) -> tuple[range, ...]:
        """Return the rows of queries, keys and values that a rank has."""
        queries = _times(self.heads(rank, world_size), self.head_size)
        keys = _times(self.kv_heads(rank, world_size), self.head_size)
        before = self.num_heads * self.head_size
        behind = before + self.num_kv_heads * self.head_size
        return queries, _moved(keys, before), _moved(keys, behind)

    def columns(self, rank: int, world_size: int) -> range:
        """Return the columns of the attention's output that a rank has."""
        return _times(self.heads(rank, world_size), self.head_size)

    def __str__(self) -> str:
        heads = f"{self.num_heads} heads of {self.head_size} elements in {self.num_kv_heads} groups"
        return f"{heads}, {_between(self.block)}"

    @property
    def _heads_per_group(self) -> int:
        return self.num_heads // self.num_kv_heads

    @property
    def _heads_together(self) -> int:
        """How many heads are whole blocks of columns."""
        return self.block // math.gcd(self.block, self.head_size)

    @property
    def _groups_together(self) -> int:
        """How many groups are whole blocks of columns."""
        together = self._heads_together
        return together // math.gcd(together, self._heads_per_group)


@dataclass(frozen=True)
class LatentHeads(Heads):
    """Heads that attend to the same latents, which every rank has.

    Each is a group by itself. Its `head_size` is that of values, and `query_size` that of queries.
    """

    query_size: int = 0

    def rows(self, rank: int, world_size: int) -> tuple[range, ...]:
        """Return the rows of queries that a rank has."""
        return (_times(self.heads(rank, world_size), self.query_size),)

    def __str__(self) -> str:
        return f"{self.num_heads} heads of {self.head_size} values, {_between(self.block)}"


@dataclass(frozen=True)
class GatedColumns(Division):
    """The inner columns of a gated MLP, whose rows are gate and up, divided in whole blocks."""

    count: int
    block: int = 1

    @property
    def most(self) -> int:
        return self.count // self.block

    def rows(self, rank: int, world_size: int) -> tuple[range, ...]:
        """Return the rows of gate and up that a rank has."""
        columns = self.columns(rank, world_size)
        return columns, _moved(columns, self.count)

    def columns(self, rank: int, world_size: int) -> range:
        """Return the columns of the gated values that a rank has.

        Examples
        --------
        >>> [GatedColumns(160, 32).columns(rank, 2) for rank in range(2)]
        [range(0, 64), range(64, 160)]
        """
        return _times(_divided(self.count // self.block, rank, world_size), self.block)

    def __str__(self) -> str:
        return f"{self.count} columns of gate and up, {_between(self.block)}"


@dataclass(frozen=True)
class Logits(Division):
    """Logits, divided as ``allgather`` puts them together."""

    count: int

    @property
    def most(self) -> int:
        return self.count

    def rows(self, rank: int, world_size: int) -> tuple[range, ...]:
        """Return the rows that a rank has of the matrix."""
        return (self.columns(rank, world_size),)

    def columns(self, rank: int, world_size: int) -> range:
        """Return the logits that a rank has."""
        return _divided(self.count, rank, world_size)

    def __str__(self) -> str:
        return f"{self.count} logits"


def _divided(count: int, rank: int, world_size: int) -> range:
    """Return what a rank has of things in a row, of which the last ranks may have one more."""
    return range(count * rank // world_size, count * (rank + 1) // world_size)


def _divided_from_first(count: int, rank: int, world_size: int) -> range:
    """Return what a rank has of things in a row, of which the first ranks may have one more."""
    return range(_first_of(count, rank, world_size), _first_of(count, rank + 1, world_size))


def _first_of(count: int, rank: int, world_size: int) -> int:
    return -(-count * rank // world_size)


def _times(units: range, size: int) -> range:
    return range(units.start * size, units.stop * size)


def _moved(of: range, by: int) -> range:
    return range(of.start + by, of.stop + by)


def _between(block: int) -> str:
    return "each one whole" if block == 1 else f"in whole blocks of {block} columns"

"""How many bytes each rank reads of a program that several ranks divide."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensor_ops_decode.program.program import Program
from tensor_ops_decode.program.step_reads import StepReads
from tensor_ops_decode.sharding.shard import shard

__all__ = ["RankShares"]


class RankShares(NamedTuple):
    """Bytes that a step of one token reads on each rank, as the program stores them.

    Attributes
    ----------
    rank : int
        The rank that says so.
    whole : int
        Bytes of weights that one rank alone would read.
    weights : tuple of int
        Bytes of weights, of each rank.
    cache_per_token : tuple of int
        Bytes of the caches for each token of the request so far, of each rank.
    """

    rank: int
    whole: int
    weights: tuple[int, ...]
    cache_per_token: tuple[int, ...]

    @staticmethod
    def of(program: Program, rank: int, world_size: int) -> RankShares:
        """Return what ranks have of a program, of which each gets its `shard`.

        Examples
        --------
        >>> from tensor_ops_decode import Builder, Limits, Tensor
        >>> builder = Builder(Limits(1, 4, 1, 64, 16, 4))
        >>> table = builder.tensor("table", Tensor("f32", (10, 8), {"attached": True}))
        >>> x = builder.add("embed", {"tokens": "tokens"}, {"weight": table}, output="x")
        >>> logits = builder.add("linear", {"x": x}, {"weight": table}, output="logits")
        >>> RankShares.of(builder.program([logits]), 0, 3).weights
        (128, 128, 160)
        """
        reads = [StepReads.of(shard(program, each, world_size)) for each in range(world_size)]
        return RankShares(
            rank,
            _bytes_of(StepReads.of(program)),
            tuple(map(_bytes_of, reads)),
            tuple(each.cache_per_token for each in reads),
        )

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return len(self.weights)

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as plain values."""
        return self._asdict() | {
            "weights": list(self.weights),
            "cache_per_token": list(self.cache_per_token),
        }

    def __str__(self) -> str:
        of_ranks = ", ".join(f"{size / 2**20:.1f}" for size in self.weights)
        caches = ", ".join(f"{size / 2**10:.1f}" for size in self.cache_per_token)
        return (
            f"rank {self.rank} of {self.world_size}: a step reads {of_ranks} MiB of weights on the "
            f"ranks, {self.whole / 2**20:.1f} MiB on one alone; the caches take {caches} KiB for "
            "each token"
        )


def _bytes_of(reads: StepReads) -> int:
    return sum(size for types in reads.weights.values() for size in types.values())

"""The shard of a program that one of several ranks runs."""

import dataclasses
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.kinds.kind import Weight
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.program.node_slots import matrices_of
from tensor_ops_decode.program.program import Program
from tensor_ops_decode.program.records import Node, new_name
from tensor_ops_decode.sharding.divisible_parts import DivisiblePart, divisible_parts
from tensor_ops_decode.sharding.rank_ranges import Heads, LatentHeads, Logits
from tensor_ops_decode.sharding.tensor_parts import TensorParts

__all__ = ["shard"]


def shard(program: Program, rank: int, world_size: int) -> Program:
    """Return the program of one rank, of which all together compute what a program does.

    Ranks divide attention by heads, a gated MLP by its inner columns, each expert as such an MLP,
    and logits by the rows of their matrix. What they do not divide each of them computes whole.

    - Products that make queries, keys and values, or gate and up, have some rows of their matrices,
      and the caches the heads of the rank. Of latent attention, every rank has the whole cache.
    - The products behind attention and MLP have some columns, and an ``allreduce`` adds what the
      ranks get, of experts once it is weighted. The bias, if there is one, is in the product of
      rank 0.
    - Logits are put together by an ``allgather``, so that every rank has all of them and chooses
      the same token.

    Parameters
    ----------
    program : Program
        A whole one; it may have quantized matrices, which are cut between blocks.
    rank : int
        From 0 on.
    world_size : int
        How many ranks there are.

    Returns
    -------
    Program
        With the outputs and the limits of `program`; of one rank, `program` itself.

    Raises
    ------
    TypeError, ValueError
        If there is no such rank.
    ProgramError
        If the program cannot be divided among so many ranks, or not at all.

    Notes
    -----
    The way of Shoeybi et al., "Megatron-LM: Training multi-billion parameter language models using
    model parallelism", 2019. A rank has whole groups of heads that share keys and values; with more
    ranks than groups, several ranks have the keys and values of one group, and divide its heads.
    Every exchange is waited for, so that heads, MLP and logits are each divided as evenly as blocks
    and groups allow, even where ranks with more heads could do with fewer columns of the MLP.

    Examples
    --------
    >>> from tensor_ops_decode import Builder, Limits, Tensor, shard
    >>> builder = Builder(Limits(1, 4, 1, 64, 16, 4))
    >>> table = builder.tensor("table", Tensor("f32", (10, 8), {"attached": True}))
    >>> x = builder.add("embed", {"tokens": "tokens"}, {"weight": table}, output="x")
    >>> last = builder.add("select", {"x": x}, output="last")
    >>> logits = builder.add("linear", {"x": last}, {"weight": table}, output="logits")
    >>> print(shard(builder.program([logits]), rank=1, world_size=2))
    x [tokens, 8] = embed(tokens=tokens, weight=table)
    last [selected, 8] = select(x=x)
    logits.share [selected, 5] = linear(x=last, weight=table[5:10])
    logits [selected, 10] = allgather(x=logits.share, num_columns=10)
    """
    rank, world_size = operator.index(rank), operator.index(world_size)
    if world_size < 1:
        raise ValueError(f"world_size must be at least 1, got {world_size}")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be from 0 to {world_size - 1}, got {rank}")
    if world_size == 1:
        return program
    parts = divisible_parts(program)
    _check(program, parts, world_size)
    return _Assembly(program, parts, rank, world_size).program()


def _check(program: Program, parts: list[DivisiblePart], world_size: int) -> None:
    for node in program.nodes:
        if KINDS[node.kind].exchanges:
            raise ProgramError(
                f"shard: {node.kind} {node.name!r} exchanges values among ranks already; give a "
                "program that one rank can run alone"
            )
    if not parts:
        raise ProgramError(
            "shard: ranks can divide attention, gated MLPs and logits, where each begins and ends "
            "with a product and no other node reads what is between; the program has none of these"
        )
    least = min(parts, key=lambda part: part.division.most)
    if world_size > least.division.most:
        raise ProgramError(
            f"shard: world_size must be at most {least.division.most}, got {world_size}: "
            f"{least.nodes[-1].name!r} divides {least.division}"
        )


class _Assembly:
    """The program of one rank, while it is being put together."""

    def __init__(
        self, program: Program, parts: Iterable[DivisiblePart], rank: int, world_size: int
    ) -> None:
        self.whole, self.place = program, (rank, world_size)
        self.builder = Builder(program.limits)
        self.tensors = TensorParts(program, self.builder)
        self.part_of = {node.name: part for part in parts for node in part.nodes}

    def program(self) -> Program:
        for node in self.whole.nodes:
            if part := self.part_of.get(node.name):
                self.add_share(node, part)
            else:
                self.add_whole(node)
        return self.builder.program(self.whole.outputs, self.whole.draft)

    def add_whole(self, node: Node) -> None:
        """Add a node that every rank runs whole."""
        attributes, cache = node.attributes, node.attributes.get("cache")
        if cache is not None and KINDS[node.kind].writes_cache:
            self.builder.cache(cache, self.whole.caches[cache])
        weights = self.whole_weights(node)
        self.builder.add(node.kind, node.inputs, weights, attributes, output=node.outputs)

    def add_share(self, node: Node, part: DivisiblePart) -> None:
        """Add a node of which a rank does a share, and the exchange behind the last of a part."""
        division, is_last = part.division, node is part.nodes[-1]
        attributes, weights = dict(node.attributes), self.share_of_weights(node, part)
        if isinstance(division, LatentHeads):
            attributes |= self.latent_heads_of(node, division)
        elif isinstance(division, Heads) and node.kind == "attention":
            attributes |= self.heads_of(node, division)
        (output,) = node.outputs.values()
        share = new_name(f"{output}.share", self.whole.values) if is_last else output
        outputs = dict.fromkeys(node.outputs, share)
        self.builder.add(node.kind, node.inputs, weights, attributes, output=outputs)
        if is_last and isinstance(division, Logits):
            columns = {"num_columns": division.count}
            self.builder.add("allgather", {"x": share}, None, columns, output=output)
        elif is_last:
            self.builder.add("allreduce", {"x": share}, output=output)

    def whole_weights(self, node: Node) -> dict[str, list[str]]:
        return {slot: self.tensors.whole(names) for slot, names in node.weights.items()}

    def share_of_weights(self, node: Node, part: DivisiblePart) -> dict[str, list[str]]:
        """Declare what a rank has of a node's weights: rows of the first, columns of the last."""
        division = part.division
        if node is part.nodes[0]:
            rows = division.rows(*self.place)
            return {
                slot.name: self.tensors.rows(slot, self.stacks_of(node, slot), rows)
                for slot in KINDS[node.kind].weights
                if slot.name in node.weights
            }
        if isinstance(division, LatentHeads) and node.kind == "head_linear":
            wanted = division.heads(*self.place)
            return {slot: self.tensors.planes(each, wanted) for slot, each in node.weights.items()}
        if isinstance(division, Heads) and node.kind == "attention":
            heads = [division.heads(*self.place)]
            return {
                slot.name: self.tensors.rows(slot, [node.weights[slot.name]], heads)
                if slot.rows == "H"  # a number for each head
                else self.tensors.whole(node.weights[slot.name])
                for slot in KINDS["attention"].weights
                if slot.name in node.weights
            }
        if node is not part.last_product or isinstance(division, Logits):
            return self.whole_weights(node)
        columns, weights = division.columns(*self.place), {}
        for slot, names in node.weights.items():
            if slot in matrices_of(node):
                weights[slot] = self.tensors.columns(names, columns)
            elif self.place[0] == 0:  # biases are in the sum once
                weights[slot] = self.tensors.whole(names)
        return weights

    def stacks_of(self, node: Node, slot: Weight) -> list[Sequence[str]]:
        """Return the tensors of a slot, one below the other: each alone, or those of a stack."""
        names = node.weights[slot.name]
        shape = self.whole.tensors[names[0]].shape
        if slot.form != "stack" or len(shape) == 3:
            return [(name,) for name in names]
        count = KINDS[node.kind].num_planes(slot, node.attributes, shape)
        return [names[first : first + count] for first in range(0, len(names), count)]

    def latent_heads_of(self, node: Node, division: LatentHeads) -> dict[str, int]:
        """Declare a cache whole, as every rank has it, and return how many heads this one has."""
        if "cache" in node.attributes:
            name = node.attributes["cache"]
            self.builder.cache(name, self.whole.caches[name])
        heads = {"num_heads": len(division.heads(*self.place))}
        return heads if "num_heads" in node.attributes else {}

    def heads_of(self, node: Node, division: Heads) -> dict[str, int]:
        """Declare the cache of this rank's heads, and return the attributes that say how many."""
        num_kv_heads = len(division.kv_heads(*self.place))
        name = node.attributes["cache"]
        cache: Any = self.whole.caches[name]
        self.builder.cache(name, dataclasses.replace(cache, num_kv_heads=num_kv_heads))
        return {"num_heads": len(division.heads(*self.place)), "num_kv_heads": num_kv_heads}

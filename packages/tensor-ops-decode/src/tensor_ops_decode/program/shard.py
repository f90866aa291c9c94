"""The shard of a program that one of several ranks runs."""

import dataclasses
import operator
from collections.abc import Iterable
from typing import Any

from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.program.divisible_parts import DivisiblePart, divisible_parts
from tensor_ops_decode.program.program import Program
from tensor_ops_decode.program.rank_ranges import Division, Heads
from tensor_ops_decode.program.records import Node
from tensor_ops_decode.program.tensor_parts import TensorParts

__all__ = ["shard"]


def shard(program: Program, rank: int, world_size: int) -> Program:
    """Return the program of one rank, of which all together compute what a program does.

    Ranks divide attention by heads, a gated MLP by its inner columns and logits by the rows of
    their matrix. What they do not divide each of them computes whole.

    - Products that make queries, keys and values, or gate and up, have some rows of their matrices,
      and the caches the heads of the rank.
    - The products behind attention and MLP have some columns. An ``allreduce`` adds what the ranks
      get, and an ``add`` the residual to the sum. The bias, if there is one, is in the product of
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
            part = self.part_of.get(node.name)
            if part is None:
                self.add(node)
            elif node is part.last:
                self.add_sum(node, part.division)
            elif part.last is None and node is part.nodes[-1]:
                self.add_gathered(node, part)
            else:
                self.add_share(node, part, node.outputs["output"])
        return self.builder.program(self.whole.outputs)

    def add(self, node: Node) -> None:
        """Add a node that every rank runs whole."""
        weights = {slot: self.tensors.whole(names) for slot, names in node.weights.items()}
        attributes, cache = node.attributes, node.attributes.get("cache")
        if cache is not None and KINDS[node.kind].cache is not None:
            self.builder.cache(cache, self.whole.caches[cache])
        self.builder.add(node.kind, node.inputs, weights, attributes, output=node.outputs)

    def add_share(self, node: Node, part: DivisiblePart, output: str) -> None:
        """Add a node of which a rank has some columns."""
        weights, attributes = {}, dict(node.attributes)
        for slot, names in node.weights.items():
            if node is part.first and slot in ("weight", "bias"):
                weights[slot] = self.tensors.rows(names, part.division.rows(*self.place))
            else:
                weights[slot] = self.tensors.whole(names)
        if isinstance(part.division, Heads) and node.kind == "attention":
            attributes |= self.heads_of(node, part.division)
        self.builder.add(node.kind, node.inputs, weights, attributes, output=output)

    def heads_of(self, node: Node, division: Heads) -> dict[str, int]:
        """Declare the cache of this rank's heads, and return the attributes that say how many."""
        num_kv_heads = len(division.kv_heads(*self.place))
        name = node.attributes["cache"]
        cache: Any = self.whole.caches[name]
        self.builder.cache(name, dataclasses.replace(cache, num_kv_heads=num_kv_heads))
        return {"num_heads": len(division.heads(*self.place)), "num_kv_heads": num_kv_heads}

    def add_gathered(self, node: Node, part: DivisiblePart) -> None:
        """Add the last node before all ranks put their columns together, and that."""
        output = node.outputs["output"]
        share = self.new_name(f"{output}.share")
        self.add_share(node, part, share)
        columns = {"num_columns": self.whole.values[output].columns}
        self.builder.add("allgather", {"x": share}, None, columns, output=output)

    def add_sum(self, node: Node, division: Division) -> None:
        """Add a product with some columns, the sum over all ranks, and the residual to that."""
        output, inputs = node.outputs["output"], {"x": node.inputs["x"]}
        if node.kind == "silu_mul_linear_with_residual":
            hidden = self.new_name(f"{output}.hidden")
            inputs = {"x": self.builder.add("silu_mul", inputs, output=hidden)}
        columns = division.columns(*self.place)
        weights = {"weight": self.tensors.columns(node.weights["weight"], columns)}
        if "bias" in node.weights and self.place[0] == 0:  # once in the sum
            weights["bias"] = self.tensors.whole(node.weights["bias"])
        share = self.new_name(f"{output}.share")
        self.builder.add("linear", inputs, weights, output=share)
        residual = node.inputs.get("residual")
        total = output if residual is None else self.new_name(f"{output}.sum")
        self.builder.add("allreduce", {"x": share}, output=total)
        if residual is not None:
            self.builder.add("add", {"a": total, "b": residual}, output=output)

    def new_name(self, name: str) -> str:
        """Return a name that no value of the whole program has."""
        while name in self.whole.values:
            name += "'"
        return name

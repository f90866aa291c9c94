"""The rule of programs that are the shards of one program."""

from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.program.records import Parts

__all__ = ["check_ranks"]


def check_ranks(program: Parts, rank: int, world_size: int) -> None:
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

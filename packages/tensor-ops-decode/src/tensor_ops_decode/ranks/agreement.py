"""Facts that all ranks must have alike before they run steps together."""

from collections.abc import Sequence

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.ranks.communicator import Facts

__all__ = ["check_alike"]


def check_alike(facts: Sequence[Facts]) -> None:
    """Raise a RankError that names the first rank whose facts differ, and in what.

    A rank differs if most others have something else; where as many have one thing as another, what
    rank 0 has counts.
    """
    for what in dict.fromkeys(name for each in facts for name in each):
        found = [each.get(what, "none") for each in facts]
        usual = max(dict.fromkeys(found), key=found.count)  # the first of several
        for rank, each in enumerate(found):
            if each != usual:
                other = found.index(usual)
                raise RankError(
                    f"rank {rank} has another {what} than rank {other}: {each}, not {usual}; start "
                    "all ranks with the same model, arguments and packages",
                    rank,
                )

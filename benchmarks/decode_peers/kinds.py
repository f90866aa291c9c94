"""The kinds of processors, each of which has goals and a record of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["KINDS", "Kind", "kind_of"]


@dataclass(frozen=True)
class Kind:
    """Processors that are compared with each other.

    Attributes
    ----------
    name : str
        As files and blocks of the page have it.
    title : str
    level : str
        The highest instruction-set level of the backend cpp that these processors have.
    has_tiles : bool
        Whether they have the tiles of AMX too.
    """

    name: str
    title: str
    level: str
    has_tiles: bool = False


_KINDS = (
    Kind("avx512", "AVX-512", "x86-64-v4"),
    Kind("amx", "AVX-512 with AMX", "x86-64-v4", has_tiles=True),
    Kind("avx2", "AVX2", "x86-64-v3"),
)
KINDS = {kind.name: kind for kind in _KINDS}


def kind_of(levels: Sequence[str], *, has_tiles: bool = False) -> str:
    """Return the kind of a processor by the levels that it has, the lowest first, and its tiles.

    One that is of no kind is named after its highest level: it has neither goals nor a section.
    """
    highest = levels[-1]
    return next(
        (kind.name for kind in _KINDS if kind.level == highest and kind.has_tiles == has_tiles),
        highest,
    )

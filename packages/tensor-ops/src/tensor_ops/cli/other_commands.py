"""Commands of other installed packages, which join ``tensor-ops`` by an entry point.

Under the group ``tensor_ops.commands`` an entry point names a command and a function that takes the
words after that name and returns the exit status, None being 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensor_ops import entry_points
from tensor_ops.backends import FAILURES, one_line
from tensor_ops.errors import TensorOpsError

if TYPE_CHECKING:
    from argparse import ArgumentParser, _SubParsersAction

__all__ = ["add", "run"]

ENTRY_POINT_GROUP = "tensor_ops.commands"


def add(commands: _SubParsersAction[ArgumentParser]) -> set[str]:
    """Add a line of help for each, and return their names; nothing of them is imported."""
    found = entry_points.named(ENTRY_POINT_GROUP)
    # A command of our own goes before one of another package with the same name.
    names = {name for name in found if name not in commands.choices}
    for name in sorted(names):
        of = " or ".join(sorted(entry_points.distribution_of(point) for point in found[name]))
        commands.add_parser(name, help=f"a command of {of}", add_help=False)
    return names


def run(name: str, words: Sequence[str]) -> int:
    """Import a command and run it.

    Raises
    ------
    TensorOpsError
        If it cannot be imported, or several packages claim its name.
    """
    points = entry_points.named(ENTRY_POINT_GROUP)[name]
    if len(points) > 1:
        raise TensorOpsError(f"command {name!r} cannot be run: {entry_points.claims(points)}")
    try:
        main = points[0].load()
    except FAILURES as error:
        raise TensorOpsError(
            f"command {name!r} of {entry_points.distribution_of(points[0])} cannot be run: "
            f"importing {points[0].value} failed: {one_line(error)}"
        ) from error
    return int(main(list(words)) or 0)

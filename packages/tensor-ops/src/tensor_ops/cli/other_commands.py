"""Commands of other installed packages, which join ``tensor-ops`` by an entry point.

Under the group ``tensor_ops.commands`` an entry point names a command and a function that takes the
words after that name and returns the exit status, None being 0. A name such as ``bench.mine`` is
for the command ``tensor-ops bench mine``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensor_ops import entry_points
from tensor_ops.backends import FAILURES, one_line
from tensor_ops.errors import TensorOpsError

if TYPE_CHECKING:
    from argparse import ArgumentParser, _SubParsersAction

__all__ = ["add", "below", "run"]

ENTRY_POINT_GROUP = "tensor_ops.commands"
# Commands of ours that other packages may add others to. They take no words but options.
PARENTS = ("bench",)


def add(commands: _SubParsersAction[ArgumentParser]) -> set[str]:
    """Add a line of help for each, and return their names; nothing of them is imported."""
    found = entry_points.named(ENTRY_POINT_GROUP)
    # A command of our own goes before one of another package with the same name.
    names = {name for name in found if name not in commands.choices and "." not in name}
    below_ours = {name for name in found if name.startswith(tuple(f"{each}." for each in PARENTS))}
    for name in sorted(names | below_ours):
        of = " or ".join(sorted(entry_points.distribution_of(point) for point in found[name]))
        commands.add_parser(_as_words(name), help=f"a command of {of}", add_help=False)
    return names


def below(words: Sequence[str], commands: _SubParsersAction[ArgumentParser]) -> str | None:
    """Return the name of a command below one of ours that words begin with, None if they do not.

    Raises
    ------
    SystemExit
        If no package has a command of this name.
    """
    if len(words) < 2 or words[0] not in PARENTS or words[1].startswith("-"):
        return None
    name = f"{words[0]}.{words[1].replace('-', '_')}"
    found = entry_points.named(ENTRY_POINT_GROUP)
    if name not in found:
        there_are = [each for each in sorted(found) if each.startswith(f"{words[0]}.")]
        listed = ", ".join(each.partition(".")[2] for each in there_are) or "none"
        commands.choices[words[0]].error(
            f"no installed package has a command {words[1]!r} below {words[0]!r}; there are: "
            f"{listed}"
        )
    return name


def run(name: str, words: Sequence[str]) -> int:
    """Import a command and run it.

    Raises
    ------
    TensorOpsError
        If it cannot be imported, or several packages claim its name.
    """
    points = entry_points.named(ENTRY_POINT_GROUP)[name]
    if len(points) > 1:
        raise TensorOpsError(
            f"command {_as_words(name)!r} cannot be run: {entry_points.claims(points)}"
        )
    try:
        main = points[0].load()
    except FAILURES as error:
        of = entry_points.distribution_of(points[0])
        raise TensorOpsError(
            f"command {_as_words(name)!r} of {of} cannot be run: "
            f"importing {points[0].value} failed: {one_line(error)}"
        ) from error
    return int(main(list(words)) or 0)


def _as_words(name: str) -> str:
    """Return a command's name as users write it."""
    return name.replace(".", " ")

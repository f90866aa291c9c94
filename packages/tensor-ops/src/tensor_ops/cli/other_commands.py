"""Commands of other installed packages, which join ``tensor-ops`` by an entry point.

Under the group ``tensor_ops.commands`` an entry point names a command and a function that takes the
words after that name and returns the exit status, None being 0. The first line of its docstring
says in the help what it does. A name such as ``bench.mine`` is for the command ``tensor-ops bench
mine``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensor_ops import entry_points
from tensor_ops.backends import FAILURES, one_line
from tensor_ops.errors import TensorOpsError

if TYPE_CHECKING:
    from argparse import ArgumentParser, _SubParsersAction
    from importlib.metadata import EntryPoint

__all__ = ["add", "below", "names", "run"]

ENTRY_POINT_GROUP = "tensor_ops.commands"
# Commands of ours that other packages may add others to. They take no words but options.
PARENTS = ("bench",)


def names(commands: _SubParsersAction[ArgumentParser]) -> set[str]:
    """Return the names of those that are not below another command."""
    found = entry_points.named(ENTRY_POINT_GROUP)
    # A command of our own goes before one of another package with the same name.
    return {name for name in found if name not in commands.choices and "." not in name}


def add(commands: _SubParsersAction[ArgumentParser]) -> None:
    """Add a line of help for each; nothing of them is imported."""
    found = entry_points.named(ENTRY_POINT_GROUP)
    below_ours = {name for name in found if name.startswith(tuple(f"{each}." for each in PARENTS))}
    for name in sorted(names(commands) | below_ours):
        commands.add_parser(_as_words(name), help=_described(found[name]), add_help=False)


def below(words: Sequence[str], commands: _SubParsersAction[ArgumentParser]) -> str | None:
    """Return the name of a command below one of ours that words begin with, None if they do not.

    A name that no package has is a usage error.
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

    Raises TensorOpsError if it cannot be imported, or several packages claim its name.
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


def _described(points: Sequence[EntryPoint]) -> str:
    """Return what the help says of a command, which several packages may claim."""
    if len(points) == 1 and (said := _first_line(points[0])):
        # As the help of our own commands begins.
        return said[0].lower() + said[1:].removesuffix(".")
    of = " or ".join(sorted(entry_points.distribution_of(point) for point in points))
    return f"a command of {of}"


def _first_line(point: EntryPoint) -> str:
    """Return the first line of a function's docstring in its source, nothing if it has none.

    It is not imported: that takes long, and may fail.
    """
    # Imported here because only the help needs it.
    import ast
    from importlib.machinery import PathFinder
    from importlib.util import find_spec
    from pathlib import Path

    package, *inner = point.module.split(".")
    try:
        spec = find_spec(package)
        for name in inner:
            package = f"{package}.{name}"
            spec = spec and PathFinder.find_spec(package, spec.submodule_search_locations)
        tree = ast.parse(Path(str(spec and spec.origin)).read_bytes())
    except FAILURES:
        return ""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    docstrings = [ast.get_docstring(each) for each in functions if each.name == point.attr]
    return (docstrings[-1] or "").partition("\n")[0] if docstrings else ""


def _as_words(name: str) -> str:
    """Return a command's name as users write it."""
    return name.replace(".", " ")

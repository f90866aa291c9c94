"""The commands of ``tensor-ops``, one file each.

A command's module has `add`, which makes its parser, and `run`, which takes the parsed arguments
and returns the exit status. What only a command needs is imported when it runs.
"""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter, _SubParsersAction
from collections.abc import Callable
from typing import Any

__all__ = ["Commands", "add_command"]

Commands = _SubParsersAction


def add_command(
    commands: "Commands[ArgumentParser]", name: str, run: Callable[[Namespace], int], **texts: Any
) -> ArgumentParser:
    """Add the parser of a command, which `run` runs; an epilog is printed as it is."""
    if "epilog" in texts:
        texts["formatter_class"] = RawDescriptionHelpFormatter
    parser = commands.add_parser(name, allow_abbrev=False, **texts)
    parser.set_defaults(run=run, parser=parser)
    return parser

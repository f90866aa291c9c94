"""What the parsers of all commands have in common."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter, _SubParsersAction
from collections.abc import Callable
from typing import Any

__all__ = ["Commands", "add_command"]

Commands = _SubParsersAction


def add_command(
    commands: Commands[ArgumentParser], name: str, run: Callable[[Namespace], int], **texts: Any
) -> ArgumentParser:
    """Add the parser of a command, which `run` runs; an epilog is printed as it is."""
    if "epilog" in texts:
        texts["formatter_class"] = RawDescriptionHelpFormatter
    parser = commands.add_parser(name, allow_abbrev=False, **texts)
    parser.set_defaults(run=run, parser=parser)
    return parser

"""The encoding of text that a command reads from standard input and writes to standard output."""

import sys
from io import TextIOWrapper

__all__ = ["use_utf8"]

_INPUT = "utf-8-sig"  # programs of Windows begin what they pipe with a byte order mark


def use_utf8() -> None:
    """Let pipes and files be UTF-8, whatever the locale is; a terminal has its own encoding.

    What is on a pipe comes from another program, or goes to one, and programs exchange UTF-8. The
    locale says what a terminal shows, and Windows has an old code page for it. The ends of lines
    within a prompt stay as they are on every system.
    """
    source, target = sys.stdin, sys.stdout
    if isinstance(source, TextIOWrapper) and source.encoding != _INPUT and not source.isatty():
        source.reconfigure(encoding=_INPUT, errors="strict", newline="\n")
    if isinstance(target, TextIOWrapper) and not target.isatty():
        target.reconfigure(encoding="utf-8", errors=target.errors)

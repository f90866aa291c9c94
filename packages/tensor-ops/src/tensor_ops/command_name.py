"""The name of our own command, and whether this process is running it."""

import sys
from pathlib import Path

__all__ = ["COMMAND", "is_own_command"]

COMMAND = "tensor-ops"


def is_own_command() -> bool:
    """Return True under ``tensor-ops`` and ``python -m tensor_ops``."""
    argv = getattr(sys, "argv", None) or [""]
    if argv[0] != "-m":
        return Path(argv[0]).stem == COMMAND
    # While Python looks for the module of -m, argv[0] is "-m" and orig_argv has the name.
    return "tensor_ops" in sys.orig_argv[sys.orig_argv.index("-m") :][1:2]

"""The name of our own command, and whether this process is running it."""

import os
import sys

__all__ = ["COMMAND", "is_own_command"]

COMMAND = "tensor-ops"
MODULE = "tensor_ops"

# Options of Python that take no value, joined or not, then -m with or without its value.
_MODULE_OPTION = r"-[bBdEiIOPqRsSuvx]*m(.*)"


def is_own_command() -> bool:
    """Return True under ``tensor-ops`` and ``python -m tensor_ops``."""
    argv = getattr(sys, "argv", None) or [""]
    if argv[0] == "-m":  # until Python has found the module that -m names
        return _module_of(sys.orig_argv) == MODULE
    return os.path.splitext(os.path.basename(str(argv[0])))[0] == COMMAND


def _module_of(arguments: list[str]) -> str:
    """Return the module that a Python command line runs with -m."""
    import re  # only here: this module is imported before Ctrl-C is taken care of

    for index, argument in enumerate(arguments):
        if option := re.fullmatch(_MODULE_OPTION, argument):
            return str(option[1]) or arguments[index + 1]
    return ""

"""Ctrl-C in our own command: it ends the process with status 130, and shows no traceback.

While modules are imported and while Python ends there is nothing to clean up, and no place that
could catch a KeyboardInterrupt. There a signal ends the process at once. What comes before this
module is imported is Python's own start, so it imports little and is imported first.
"""

import os
import signal

from tensor_ops.command_name import is_own_command

__all__ = ["STATUS", "end_from_here", "raise_from_here"]

STATUS = 130


def _end(number: int, frame: object) -> None:
    os._exit(STATUS)


# A shell has what it starts in the background ignore the signal; that stays as it is.
_ends = is_own_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def end_from_here() -> None:
    """Have Ctrl-C end the process, if it runs our own command."""
    if _ends:
        signal.signal(signal.SIGINT, _end)


def raise_from_here() -> None:
    """Have Ctrl-C raise KeyboardInterrupt, as it does in programs that are not our command."""
    if _ends:
        signal.signal(signal.SIGINT, signal.default_int_handler)


end_from_here()

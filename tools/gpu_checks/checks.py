"""Checks that are made one after another in a process of their own, whatever each of them finds.

A line for each: passed, failed or skipped, its name, and what it has found.
"""

import traceback
from collections.abc import Callable

__all__ = ["AbsentError", "Checks", "registered", "run"]

# By name. A check returns what it has found, if there is more to say than that it passed.
Check = Callable[[], str | None]
Checks = dict[str, Check]


class AbsentError(Exception):
    """A requirement of a check is not here."""


def registered(checks: Checks) -> Callable[[Check], Check]:
    """Return a decorator that adds a function to checks, by the first line of its docstring."""

    def register(function: Check) -> Check:
        checks[(function.__doc__ or "").rstrip(".")] = function
        return function

    return register


def run(checks: Checks) -> int:
    """Make checks; return the exit status, which is 1 if one failed."""
    failed = False
    for name, check in checks.items():
        try:
            found = check()
            print(f"passed {name}{f': {found}' if found else ''}", flush=True)
        except AbsentError as error:
            print(f"skipped {name}: {error}", flush=True)
        except Exception as error:
            failed = True
            print(f"failed {name}: {type(error).__name__}: {error}", flush=True)
            traceback.print_exc()
    return 1 if failed else 0

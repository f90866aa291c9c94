"""Checks of numbers and functions that callers give.

Tested by tests/decode/generation/test_odd_arguments.py.
"""

import math
import operator
from collections.abc import Iterable
from numbers import Real
from typing import Any

from tensor_ops.extension import did_you_mean

__all__ = ["check_known", "check_progress", "check_seconds", "is_number", "whole"]


def check_known(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise a TypeError for the name of an argument that a function does not have."""
    for name in given:
        if name not in known:
            raise TypeError(
                f"{function}() has no argument {name!r}; {did_you_mean(name, known)}"
                f"the arguments are {', '.join(known)}"
            )


def check_progress(progress: object) -> None:
    """Raise a TypeError unless progress can be reported to it."""
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function, got {progress!r:.80}")


def check_seconds(name: str, value: Any) -> None:
    """Raise a ValueError unless a value is a number of seconds."""
    if not isinstance(value, Real) or not float(value) >= 0:
        raise ValueError(f"{name} must be a number, 0 or larger, got {value!r:.80}")


def is_number(value: object) -> bool:
    """Return whether a value is a finite number that float64 holds."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return an argument as an int, if it is an integer of Python or NumPy in its range."""
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except Exception:  # an object's own method may raise anything
        found = None
    if found is None or found < least or (most is not None and found > most):
        expected = "a positive integer" if least else "an integer, 0 or larger"
        expected = expected if most is None else f"an integer from {least} to {most}"
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return found

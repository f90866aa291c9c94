"""The peers, one file each; a new file is a new peer.

A peer is a module with these names, which runs in a process of its own (``comparison.worker``):

``LABEL``
    What tables and figures call it.
``PACKAGES``
    The distributions whose versions its times belong to.
``HAS`` (optional)
    The names of the variants of ops that it has; without this it is asked for every one.
``TAKES_ARGUMENTS`` (optional)
    False if `ways` needs no `values` and no `out`, and is to be given none.
``start(threads)``
    Called once, before anything else, with the number of threads to use.
``ways(case, values, out)``
    Return the calls that compute a case, a `Way` for each name; ``""`` where there is one way
    only. `values` are the arrays of the op by name; `out` is a tuple of arrays of the results'
    shapes and dtype to write into, or None where the result is to be new. A dtype or mode that the
    peer does not have it refuses by raising `UnsupportedError`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["UnsupportedError", "Way", "ways_of_ops"]


class UnsupportedError(Exception):
    """The peer has no such op, or not for this dtype or mode; the message says which."""


def as_arrays(returned: Any) -> tuple[Any, ...]:
    """Return the results of a call as a tuple of NumPy arrays."""
    results = returned if isinstance(returned, tuple | list) else (returned,)
    return tuple(map(np.asarray, results))


@dataclass(frozen=True)
class Way:
    """One way of computing a case.

    Attributes
    ----------
    call : callable
        Without arguments; what is timed. It returns when the result is complete.
    read : callable
        Turns what `call` returned into a tuple of NumPy arrays; not timed.
    """

    call: Callable[[], Any]
    read: Callable[[Any], tuple[Any, ...]] = as_arrays


def ways_of_ops(
    function: Callable[..., Any],
    options: dict[str, Any],
    values: dict[str, Any],
    out: tuple[Any, ...] | None,
) -> dict[str, Way]:
    """Return the call of one of our ops, arrays given by position as users do."""
    given = {} if out is None else {"out": out if len(out) > 1 else out[0]}
    return {"": Way(functools.partial(function, *values.values(), **options, **given))}

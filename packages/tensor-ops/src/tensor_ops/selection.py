"""Which backend runs: one rule over plain values, without I/O.

Each level (the call, the context, the default, the environment, the file, the built-in
default) states what it wants as `Wishes`. `decide` takes the first level that wants
anything; `choose` walks the candidates of that decision.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from tensor_ops.names import AUTO, DEFAULT_PRIORITY, FLOOR

__all__ = ["BUILT_IN", "Choice", "Decision", "Step", "Wishes", "choose", "decide"]

Mode = Literal["force", "named", "preferred", "auto"]


class Wishes(NamedTuple):
    """What one level asks for; None is "says nothing".

    Attributes
    ----------
    source : str
        The level in words, as `explain` shows it.
    force, named, preferred : str or None
        A backend that must run, that must run because the call or context named it, or that
        runs if it can. `preferred` and `named` may be ``"auto"``.
    priority : tuple of str or None
        The order in which backends are tried.
    """

    source: str
    force: str | None = None
    named: str | None = None
    preferred: str | None = None
    priority: tuple[str, ...] | None = None


class Decision(NamedTuple):
    """The outcome of the levels: which backends may run, in which order, and who said so."""

    mode: Mode
    candidates: tuple[str, ...]
    source: str
    priority: tuple[str, ...]

    @property
    def strict(self) -> bool:
        """True when exactly one backend may run and anything else is an error."""
        return self.mode in ("force", "named")


class Step(NamedTuple):
    """One candidate of a walk and the reason it was passed over, None for the chosen one."""

    backend: str
    reason: str | None


class Choice(NamedTuple):
    """The backend that runs (None when no candidate can) and the walk that led to it."""

    backend: str | None
    steps: tuple[Step, ...]


BUILT_IN = Wishes("the built-in default", preferred=AUTO, priority=DEFAULT_PRIORITY)


def decide(levels: Iterable[Wishes]) -> Decision:
    """Return the decision of the first level that asks for anything.

    Within a level, `force` goes before `named`, `preferred` and `priority`. The order of
    fall-back is the first `priority` found on any level.

    Examples
    --------
    >>> decide([Wishes("backend.json", preferred="cpp"), BUILT_IN]).candidates
    ('cpp', 'cuda', 'opencl', 'python')
    """
    levels = [*levels, BUILT_IN]
    priority = next(level.priority for level in levels if level.priority is not None)
    for level in levels:
        if level.force is not None:
            return Decision("force", (level.force,), level.source, priority)
        if level.named is not None and level.named != AUTO:
            return Decision("named", (level.named,), level.source, priority)
        if level.preferred is not None and level.preferred != AUTO:
            candidates = _with_floor((level.preferred, *priority))
            return Decision("preferred", candidates, level.source, priority)
        if AUTO in (level.named, level.preferred) or level.priority is not None:
            return Decision("auto", _with_floor(priority), level.source, priority)
    raise AssertionError("the built-in level always decides")


def choose(candidates: Iterable[str], reason: Callable[[str], str | None]) -> Choice:
    """Return the first candidate for which `reason` is None, with every step on the way."""
    steps: list[Step] = []
    for backend in candidates:
        steps.append(Step(backend, reason(backend)))
        if steps[-1].reason is None:
            return Choice(backend, tuple(steps))
    return Choice(None, tuple(steps))


def _with_floor(candidates: Iterable[str]) -> tuple[str, ...]:
    """Return the candidates once each, with the NumPy backend last unless it has a place."""
    return tuple(dict.fromkeys((*candidates, FLOOR)))

"""Which backend runs: one rule over plain values, without I/O.

Each level (the call, the context, the default, the environment, the file, the built-in
default) says what it asks for as a `ConfigLevel`. `decide` takes the first level that wants
anything, unless another forces a backend; `choose_for` walks the candidates of that decision.

Tested by tests/selection/.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from tensor_ops.backends.names import (
    AUTO,
    AUTOMATIC,
    CPU,
    DEFAULT_PRIORITY,
    FASTEST,
    LAST_ON_CPUS,
    LAST_RESORT,
    split,
)
from tensor_ops.errors import BackendError

__all__ = [
    "BUILT_IN",
    "Choice",
    "Decision",
    "Step",
    "ConfigLevel",
    "choose",
    "choose_for",
    "decide",
    "in_measured_order",
    "steps",
]

Mode = Literal["force", "named", "preferred", "fastest", "auto"]


class ConfigLevel(NamedTuple):
    """Requests of one level; None is "says nothing"."""

    # The level in words, as `explain` shows it.
    source: str
    # A backend that must run, that must run because the call or context named it, or that runs if
    # it can. `preferred` and `named` may be ``"auto"`` or ``"fastest"``.
    force: str | None = None
    named: str | None = None
    preferred: str | None = None
    # The order in which backends are tried.
    priority: tuple[str, ...] | None = None
    # How a user lifts this level's force.
    lift: str = ""

    @property
    def wanted(self) -> str | None:
        """The backend that this level asks for, if it asks for one."""
        names = (self.force, self.named, self.preferred)
        return next((name for name in names if name not in (None, *AUTOMATIC)), None)


class Decision(NamedTuple):
    """The outcome of the levels: which backends may run, in which order, and who said so.

    Attributes
    ----------
    mode : {"force", "named", "preferred", "fastest", "auto"}
    candidates : tuple of str
    source : str
        The level that decided.
    priority : tuple of str
        The order of falling back.
    overridden : tuple of str
        The levels that ask for another backend than the one that is forced.
    measured : tuple of str
        The candidates that stand first because of their times (see `in_measured_order`).
    narrowed_by : str or None
        The level whose name says more than the force, which is that of `source`.
    lift : str
        What a user does to lift the force, empty without one.
    """

    mode: Mode
    candidates: tuple[str, ...]
    source: str
    priority: tuple[str, ...]
    overridden: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    narrowed_by: str | None = None
    lift: str = ""

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


BUILT_IN = ConfigLevel("the built-in default", preferred=AUTO, priority=DEFAULT_PRIORITY)


def decide(levels: Iterable[ConfigLevel]) -> Decision:
    """Return the decision of the strongest level that forces, else of the first that asks.

    Within a level, `force` goes before `named`, `preferred` and `priority`. The order of
    fall-back is the first `priority` found on any level.

    Raises
    ------
    BackendError
        If a stronger level names another backend than the one that is forced.

    Examples
    --------
    >>> decide([ConfigLevel("backend.json", preferred="cpp"), BUILT_IN]).candidates
    ('cpp', 'cuda', 'opencl', 'python')
    """
    levels = [*levels, BUILT_IN]
    priority = next(level.priority for level in levels if level.priority is not None)
    for level in levels:
        if level.force is not None:
            return _forced(level, level.force, levels, priority)
    for level in levels:
        if level.named is not None and level.named not in AUTOMATIC:
            return Decision("named", (level.named,), level.source, priority)
        if level.preferred is not None and level.preferred not in AUTOMATIC:
            candidates = _with_last_resort((level.preferred, *priority))
            return Decision("preferred", candidates, level.source, priority)
        candidates = _with_last_resort(priority)
        if FASTEST in (level.named, level.preferred):
            return Decision("fastest", candidates, level.source, priority)
        if AUTO in (level.named, level.preferred) or level.priority is not None:
            return Decision("auto", candidates, level.source, priority)
    raise AssertionError("the built-in level always decides")


def in_measured_order(decision: Decision, backends: Iterable[str]) -> Decision:
    """Return a decision whose candidates begin with these backends, in this order.

    A backend that is no candidate does not become one.

    Examples
    --------
    >>> auto = decide([])
    >>> in_measured_order(auto, ["cpp", "another", "cuda"]).candidates
    ('cpp', 'cuda', 'opencl', 'python')
    """
    places = {name: place for place, name in enumerate(backends)}
    known = [name for name in decision.candidates if split(name)[0] in places]
    measured = tuple(sorted(known, key=lambda name: places[split(name)[0]]))
    candidates = tuple(dict.fromkeys((*measured, *decision.candidates)))
    return decision._replace(candidates=candidates, measured=measured)


def choose(candidates: Iterable[str], reason: Callable[[str], str | None]) -> Choice:
    """Return the first candidate for which `reason` is None, with every step on the way."""
    return _first(Step(backend, reason(backend)) for backend in candidates)


def choose_for(
    decision: Decision, reason: Callable[[str], str | None], kind: Callable[[str], str | None]
) -> Choice:
    """Return the choice among a decision's candidates.

    Parameters
    ----------
    decision : Decision
    reason : callable
        Returns why a backend cannot run, None if it can.
    kind : callable
        Returns the kind of device that an available backend runs on.
    """
    return _first(steps(decision, reason, kind))


def steps(
    decision: Decision, reason: Callable[[str], str | None], kind: Callable[[str], str | None]
) -> Iterator[Step]:
    """Yield every candidate of a decision with the reason against it; see `choose_for`.

    OpenCL on a CPU waits until the others have had their turn, unless it was asked for or measured:
    in any order ``opencl`` stands for devices that are no CPUs, and ``opencl:cpu`` for CPUs. It
    does not wait for NumPy where the order does not name that.
    """
    candidates = ordered = decision.candidates
    if candidates[-1] == LAST_RESORT and LAST_RESORT not in decision.priority:
        ordered = candidates[:-1]
    asked_for = decision.measured if decision.mode in AUTOMATIC else candidates[:1]
    waiting: list[str] = []
    for place, name in enumerate(candidates):
        if place == len(ordered):
            yield from (Step(each, None) for each in waiting)
            waiting.clear()
        why = reason(name)
        may_wait = name == LAST_ON_CPUS and name not in (*asked_for, *ordered[-1:])
        if why is None and may_wait and kind(name) == CPU:
            waiting.append(name)
            why = (
                "its device is a CPU, for which the others are tried first; "
                f"'{name}:{CPU}' has a place of its own"
            )
        yield Step(name, why)
    yield from (Step(name, None) for name in waiting)


def _first(steps: Iterable[Step]) -> Choice:
    walked: list[Step] = []
    for step in steps:
        walked.append(step)
        if step.reason is None:
            return Choice(split(step.backend)[0], tuple(walked))
    return Choice(None, tuple(walked))


def _forced(
    forcing: ConfigLevel, forced: str, levels: list[ConfigLevel], priority: tuple[str, ...]
) -> Decision:
    overridden, narrowed_by = [], None
    is_stronger = True
    for level in levels:
        # Only the priority of a stronger level contradicts the force.
        first = level.priority[0] if level.priority and is_stronger else None
        wanted = level.wanted or first
        if level is forcing:
            is_stronger = False
            continue
        if wanted is None:
            continue
        both = _narrower(forced, wanted)
        if level.named is None:
            # A weaker preference for a kind of device may still be met; another force cannot be.
            if both is None or (level.force is not None and both != forced):
                overridden.append(level.source)
        elif both is None:
            raise BackendError(
                f"backend {wanted!r} (named by {level.source}) may not run: {forcing.source} "
                f"forces {forced!r}, which nothing but a stronger force undoes; to lift it, "
                f"{forcing.lift}"
            )
        elif both != forced:
            forced, narrowed_by = both, level.source
    return Decision(
        "force",
        (forced,),
        forcing.source,
        priority,
        overridden=tuple(overridden),
        narrowed_by=narrowed_by,
        lift=forcing.lift,
    )


def _narrower(a: str, b: str) -> str | None:
    """Return the name that satisfies both, which may name a kind of device; None if none does.

    Examples
    --------
    >>> _narrower("opencl", "opencl:gpu"), _narrower("opencl:cpu", "opencl:gpu")
    ('opencl:gpu', None)
    """
    (backend_a, kind_a), (backend_b, kind_b) = split(a), split(b)
    if backend_a != backend_b or (kind_a and kind_b and kind_a != kind_b):
        return None
    return a if kind_a else b


def _with_last_resort(candidates: Iterable[str]) -> tuple[str, ...]:
    """Return the candidates once each, with the NumPy backend last unless it has a place."""
    return tuple(dict.fromkeys((*candidates, LAST_RESORT)))

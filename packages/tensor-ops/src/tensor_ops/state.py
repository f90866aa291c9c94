"""What is configured now, at every level below the call: context, default, environment, file."""

import sys
import threading
import warnings
from contextvars import ContextVar
from types import FrameType
from typing import Any, NamedTuple

from tensor_ops import backends, config, selection
from tensor_ops.errors import BackendFallbackWarning, TensorOpsError
from tensor_ops.names import AUTO, not_a_name, resolve
from tensor_ops.selection import Choice, Decision, Wishes

__all__ = [
    "Plan",
    "context_name",
    "current",
    "enforce",
    "plan_for",
    "reload",
    "set_default",
    "settings",
]


class Plan:
    """A decision with what has been found out about it: the walk and the functions to call.

    `functions` maps an op's name to the function for each dtype; `host_function` fills it.
    """

    __slots__ = ("_choice", "_lock", "decision", "functions")

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.functions: dict[str, dict[Any, Any]] = {}
        self._choice: Choice | None = None
        self._lock = threading.RLock()

    @property
    def choice(self) -> Choice:
        """The walk over the candidates; the first access imports backends until one can run.

        Raises
        ------
        BackendUnavailableError
            If the decision is strict and its backend is unavailable.
        """
        choice = self._choice
        if choice is None:
            choice = self._walk()  # imports backends, so no lock is held yet
            with self._lock:
                if self._choice is None:
                    # Where the user's filter makes this an error, every call raises it.
                    self._warn_of_fallback(choice)
                    self._choice = choice
        return choice

    def _walk(self) -> Choice:
        decision = self.decision
        if decision.strict:
            backends.require(decision.candidates[0], f"{_VERB[decision.mode]} by {decision.source}")
        return selection.choose(decision.candidates, lambda name: backends.load(name).reason)

    def _warn_of_fallback(self, choice: Choice) -> None:
        """Warn once of a preferred backend that is unavailable, and of those that are broken."""
        is_preferred = self.decision.mode == "preferred"
        problems = [
            f"backend {step.backend!r}, preferred by {self.decision.source}, is unavailable: "
            f"{step.reason}"
            if is_preferred and index == 0
            else f"backend {step.backend!r} is installed but cannot be used: {step.reason}"
            for index, step in enumerate(choice.steps)
            if step.reason is not None
            and ((is_preferred and index == 0) or backends.load(step.backend).is_broken)
        ]
        if problems:
            warnings.warn(
                f"{'; '.join(problems)}. Running on {choice.backend!r} instead",
                BackendFallbackWarning,
                stacklevel=_outside_stacklevel(),
            )


class Settings(NamedTuple):
    """The levels that hold for the whole process, and the file that was read."""

    default: Wishes | None
    environment: tuple[Wishes, ...]
    file: config.Config

    def levels(self) -> list[Wishes]:
        """Return the levels below the context, strongest first."""
        default = [self.default] if self.default else []
        return [*default, *self.environment, self.file.wishes(backends.INSTALLED)]


# The backend named by the innermost use_backend(), None outside of any.
context_name: ContextVar[str | None] = ContextVar("tensor_ops_backend", default=None)

_VERB = {"force": "forced", "named": "named"}
_lock = threading.RLock()
_settings: Settings | None = None
# Keyed by who named what; None is the process-wide plan. Replaced as a whole when settings change.
_plans: dict[tuple[str, str] | None, Plan] = {}


def settings() -> Settings:
    """Return the process-wide settings, read from environment and file on first use."""
    global _settings
    if _settings is None:
        with _lock:
            if _settings is None:
                _settings = _read(None)
    return _settings


def reload() -> None:
    """Read environment and file again; on an error the settings stay as they were."""
    global _settings
    with _lock:
        backends.rescan()
        _settings = _read(_settings.default if _settings else None)
        backends.forget_unavailable()
        _plans.clear()


def enforce() -> None:
    """Read the settings, and import the backend that they force, if they force one.

    After an error nothing is kept, so that the next import of tensor_ops starts afresh.

    Raises
    ------
    ConfigError
        If a setting is not valid.
    BackendUnavailableError
        If the forced backend is unavailable.
    """
    global _settings
    try:
        plan = plan_for(None)
        if plan.decision.mode == "force":
            plan.choice  # noqa: B018 - raises
    except TensorOpsError:
        with _lock:
            backends.rescan()
            backends.forget_unavailable()
            _settings = None
            _plans.clear()
        raise


def set_default(name: str | None) -> None:
    """Set or clear the default backend of the process."""
    global _settings
    with _lock:
        default = None if name is None else Wishes("set_default_backend()", preferred=name)
        before = settings()
        _settings = Settings(default, before.environment, before.file)
        _plans.clear()


def current() -> Plan:
    """Return the plan that holds here: the context's if there is one, else the process's."""
    name = context_name.get()
    return _plans.get(None) or plan_for(None) if name is None else plan_for(name, "use_backend()")


def plan_for(name: str | None, source: str = "") -> Plan:
    """Return the plan for a call or context that names a backend, or for neither.

    Raises
    ------
    ConfigError
        If no backend has that name.
    TypeError
        If `name` is not a string.
    """
    if name is not None and not isinstance(name, str):
        raise not_a_name(name)
    key = None if name is None else (name, source)
    plan = _plans.get(key)
    if plan is None:
        with _lock:
            levels = settings().levels()
            if name is not None:
                own = name if name == AUTO else resolve(name, backends.INSTALLED)
                levels.insert(0, Wishes(source, named=own))
            plan = _plans.setdefault(key, Plan(selection.decide(levels)))
    return plan


def _read(default: Wishes | None) -> Settings:
    path = config.find()
    file = config.load(path, backends.INSTALLED) if path else config.Config()
    return Settings(default, config.environment_wishes(backends.INSTALLED), file)


def _outside_stacklevel() -> int:
    """Return the stack level of the first caller outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        level, frame = level + 1, frame.f_back
    return level


def _is_ours(frame: FrameType) -> bool:
    # exec() may run code in a namespace without a name.
    return str(frame.f_globals.get("__name__")).startswith("tensor_ops.")

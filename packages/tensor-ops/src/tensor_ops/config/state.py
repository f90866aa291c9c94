"""The present configuration at every level below the call: context, default, environment, file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from tensor_ops import backends, config
from tensor_ops.backends.names import AUTOMATIC, FASTEST, not_a_name, resolve
from tensor_ops.config import location, selection, variables
from tensor_ops.config.selection import Choice, ConfigLevel, Decision
from tensor_ops.errors import BackendFallbackWarning, warn_caller

if TYPE_CHECKING:
    from tensor_ops.config.tuning_table import Tuning

__all__ = [
    "DispatchTable",
    "context_name",
    "current",
    "enforce",
    "forget",
    "table_for",
    "table_past_forces",
    "tables",
    "reload",
    "set_default",
    "settings",
    "start",
]


class Times:
    """The table of ``tensor-ops tune``, read when it is first asked for and kept.

    Attributes
    ----------
    has_warned : bool
        Whether the user has been warned that the table cannot be used.
    """

    def __init__(self) -> None:
        self.has_warned = False
        self._read: Tuning | None = None
        self._found: Tuning | None = None

    def get(self, decision: Decision) -> Tuning:
        """Return the table, if it fits the candidates of a decision, or why there is none."""
        if self._found is None:
            from tensor_ops.config import tuning_table  # only those who prefer "fastest" need it

            with _lock:
                self._read = self._read or tuning_table.find()
            # This imports backends, so no lock is held.
            self._found = tuning_table.fitting(self._read, decision.candidates)
        return self._found


class DispatchTable:
    """A decision with what has been found out about it: the walk and the functions to call.

    Attributes
    ----------
    decision : Decision
    functions : dict
        By the key of a `Route`, the function for each dtype that it has met. Nothing but
        `Route.function` writes it.
    """

    __slots__ = ("_choice", "_lock", "decision", "functions")

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.functions: dict[str, dict[Hashable, Callable[..., Any] | None]] = {}
        self._choice: Choice | None = None
        self._lock = threading.RLock()

    @property
    def choice(self) -> Choice:
        """The walk over the candidates; the first access imports backends until one can run.

        Raises
        ------
        BackendUnavailableError
            If the decision is strict and its backend is unavailable.
        ConfigError
            If a setting of a candidate's own is wrong.
        """
        choice = self._choice
        if choice is None:
            choice = self._walk()  # imports backends, so no lock is held yet
            with self._lock:
                if self._choice is None:
                    # A warnings filter may turn this into an error. The choice is not kept then, so
                    # that every call raises it.
                    self._warn_of_fallback(choice)
                    self._choice = choice
        return choice

    @property
    def times(self) -> Tuning:
        """The table of measured times, for a decision by the fastest."""
        return _times.get(self.decision)

    def _walk(self) -> Choice:
        decision = self.decision
        if decision.strict:
            wanted_by = f"{_VERB[decision.mode]} by {decision.source}"
            if decision.narrowed_by is not None:
                wanted_by += f", narrowed by {decision.narrowed_by}"
            backends.require(decision.candidates[0], wanted_by)
        return selection.choose_for(decision, backends.reason_against, backends.kind_of_device)

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
        times = _times
        is_table_broken = self.decision.mode == FASTEST and self.times.is_broken
        if is_table_broken and not times.has_warned:
            problems.insert(
                0,
                f"the times that {FASTEST!r}, asked for by {self.decision.source}, goes by are not "
                f"used: {self.times.reason}",
            )
        if problems:
            warn_caller(
                f"{'; '.join(problems)}. Running on {choice.backend!r} instead",
                BackendFallbackWarning,
            )
        times.has_warned = times.has_warned or is_table_broken


class ProcessSettings(NamedTuple):
    """The levels that hold for the whole process, and the file that was read."""

    default: ConfigLevel | None
    environment: tuple[ConfigLevel, ...]
    file: config.Config

    def levels(self) -> list[ConfigLevel]:
        """Return the levels below the context, strongest first."""
        default = [self.default] if self.default else []
        return [*default, *self.environment, self.file.level(backends.INSTALLED)]


# The backend named by the innermost use_backend(), None outside of any.
context_name: ContextVar[str | None] = ContextVar("tensor_ops_backend", default=None)
# By the name of a backend and the level that names it; None is the process-wide table. Replaced as
# a whole when the settings change.
tables: dict[tuple[str, str] | None, DispatchTable] = {}

_VERB = {"force": "forced", "named": "named"}
_lock = threading.RLock()
_settings: ProcessSettings | None = None
_times = Times()


def settings() -> ProcessSettings:
    """Return the process-wide settings, read from environment and file on first use."""
    global _settings
    if _settings is None:
        with _lock:
            if _settings is None:
                _settings = _read(None)
    return _settings


def reload() -> None:
    """Read environment and file again; on an error the settings stay as they were."""

    def read() -> ProcessSettings:
        global _times
        backends.rescan()
        new = _read(_settings.default if _settings else None)
        _times = Times()
        backends.forget_probes()
        return new

    _change(read)


def enforce() -> None:
    """Import the backend that the settings force, if they force one.

    Raises
    ------
    ConfigError
        If a setting is not valid.
    BackendUnavailableError
        If the forced backend is unavailable.
    """
    table = table_for(None)
    if table.decision.mode == "force":
        table.choice  # noqa: B018 - raises


def start() -> None:
    """Read the settings and `enforce` them, for the import of tensor_ops.

    After an error or an interrupt nothing is kept, so that the next import starts afresh.
    """
    try:
        enforce()
    except BaseException:
        forget()
        raise


def forget() -> None:
    """Forget all that was read and found, so that what is asked next reads it anew."""
    global _settings, _times, tables
    with _lock:
        backends.rescan()
        backends.forget_probes()
        _settings, _times, tables = None, Times(), {}


def set_default(name: str | None) -> None:
    """Set or clear the default backend of the process."""
    default = None if name is None else ConfigLevel("set_default_backend()", preferred=name)
    _change(lambda: settings()._replace(default=default))


def _change(new_settings: Callable[[], ProcessSettings]) -> None:
    """Replace the settings and discard their dispatch tables in one step, or change nothing.

    A signal handler may run at any point here and change the settings itself, perhaps after
    reading a newer file. Its change is kept: the new settings are then computed again.
    """
    global _settings, tables
    with _lock:
        while True:
            found = tables
            new = new_settings()
            if found is tables:
                _settings, tables = new, {}
                return


def current() -> DispatchTable:
    """Return the dispatch table in force here: that of the context, else that of the process."""
    name = context_name.get()
    if name is None:
        return tables.get(None) or table_for(None)
    return table_for(name, "use_backend()")


def table_for(name: str | None, source: str = "") -> DispatchTable:
    """Return the dispatch table for a call or context that names a backend, or for neither.

    Raises
    ------
    ConfigError
        If no backend has that name.
    BackendError
        If another one is forced.
    TypeError
        If `name` is not a string.
    """
    if name is not None and not isinstance(name, str):
        raise not_a_name(name)
    key = None if name is None else (name, source)
    table = tables.get(key)
    if table is None:
        with _lock:
            # Taken before the settings are read: a signal handler may replace both in between, and
            # the new table then belongs to the old settings.
            found = tables
            levels = settings().levels()
            if name is not None:
                levels.insert(0, _named(name, source))
            table = found.setdefault(key, DispatchTable(selection.decide(levels)))
    return table


def table_past_forces(name: str, source: str) -> DispatchTable:
    """Return a dispatch table for a backend that runs whatever is forced.

    It is for what compares backends, such as ``tensor-ops bench``.
    """
    return DispatchTable(selection.decide([_named(name, source)]))


def _named(name: str, source: str) -> ConfigLevel:
    own = name if name in AUTOMATIC else resolve(name, backends.INSTALLED)
    return ConfigLevel(source, named=own)


def _read(default: ConfigLevel | None) -> ProcessSettings:
    path = location.find()
    file = config.load(path, backends.INSTALLED) if path else config.Config()
    read = ProcessSettings(default, config.environment_levels(backends.INSTALLED), file)
    variables.warn_of_unread()
    return read


def _begin_forked_child() -> None:
    """Look again at the backends, whose devices may not survive a fork, and at the choice."""
    global _lock, tables
    _lock = threading.RLock()  # another thread of the parent may have held it
    backends.probe_again()
    tables = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_forked_child)

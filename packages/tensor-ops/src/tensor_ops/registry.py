"""The registry functions: which backends there are and which one runs."""

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

from tensor_ops import backends
from tensor_ops.backends.names import ALIASES, AUTOMATIC, KNOWN, LAST_RESORT, resolve, split
from tensor_ops.config import selection, state
from tensor_ops.config.selection import Decision
from tensor_ops.ops import OPS

__all__ = [
    "get_available_backends",
    "get_backend",
    "get_backend_info",
    "get_default_backend",
    "is_backend_available",
    "list_backends",
    "list_ops",
    "reload_config",
    "set_default_backend",
    "use_backend",
]

P = ParamSpec("P")
R = TypeVar("R")

# The names to restore at the ends of the open `use_backend` blocks, the innermost last.
_outer_names: ContextVar[tuple[str | None, ...]] = ContextVar("tensor_ops_outer", default=())

_RUN_LATER = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)


def get_backend() -> str:
    """Return the name of the backend that runs here, imported and probed.

    An op that it cannot run is passed on, and ``"fastest"`` chooses for each call: `explain` says
    which backend that is.

    Raises
    ------
    BackendUnavailableError
        If a backend is forced or named and unavailable.

    Examples
    --------
    >>> import tensor_ops
    >>> with tensor_ops.use_backend("python"):
    ...     tensor_ops.get_backend()
    'python'
    """
    name = state.current().choice.backend
    assert name is not None, "the NumPy backend is always there"
    return name


def get_backend_info(name: str | None = None) -> dict[str, Any]:
    """Return facts about one backend, or about the selection if none is named.

    Parameters
    ----------
    name : str, optional
        A backend or alias.

    Returns
    -------
    dict
        With a name: the keys `name`, `display_name`, `available`, `reason`, `version`,
        `device_name`, `device_count`, `compute_capability` (90 for 9.0), `compute_units`,
        `max_memory` (bytes), `max_shared_memory` (bytes), `dtypes` and `ops`. Where a key has no
        meaning for the backend, numbers are 0 and the others None. Without: `backend`, `config`,
        `config_file`, `available_backends` (those that run ops) and `decided_by`.

    Raises
    ------
    ConfigError
        If no backend has that name.
    """
    if name is not None:
        return backends.info(_resolve(name))
    file = state.settings().file
    return {
        "backend": get_backend(),
        "config": file.as_dict(),
        "config_file": None if file.path is None else str(file.path),
        "available_backends": get_available_backends(runs_programs=False),
        "decided_by": state.current().decision.source,
    }


def get_available_backends(*, runs_programs: bool = True) -> list[str]:
    """Return the backends that run ops and programs here, in the order in which they are tried.

    Only the backends of the effective priority list and the one that runs here are looked at.

    Parameters
    ----------
    runs_programs : bool, optional
        Whether they must run whole programs too, as `PersistentKernel` wants it. False also returns
        those that compute single ops alone, such as ``opencl``.

    Examples
    --------
    >>> import tensor_ops
    >>> "python" in tensor_ops.get_available_backends()
    True
    """
    decision = state.current().decision
    wider = decision._replace(candidates=tuple(_places(decision)))
    steps = selection.steps(wider, lambda name: backends.load(name).reason, backends.kind_of_device)
    names = dict.fromkeys(split(step.backend)[0] for step in steps if step.reason is None)
    return [name for name in names if backends.runs_programs(name) or not runs_programs]


def is_backend_available(name: str) -> bool:
    """Return whether a backend is installed and finds a usable device.

    Raises
    ------
    ConfigError
        If no backend has that name.
    """
    return backends.load(_resolve(name)).reason is None


def get_default_backend() -> str:
    """Return the backend that runs outside of any `use_backend`."""
    name = state.table_for(None).choice.backend
    assert name is not None, "the NumPy backend is always there"
    return name


def set_default_backend(name: str | None) -> None:
    """Prefer a backend in the whole process, before environment and configuration file.

    Parameters
    ----------
    name : str or None
        A backend, an alias, ``"auto"`` or ``"fastest"``; None returns to environment and file.

    Raises
    ------
    BackendUnavailableError
        If the backend is unavailable; the default stays what it was.
    BackendError
        If environment or file force another backend; the default stays what it was.
    ConfigError
        If no backend has that name.
    """
    if name is not None and name not in AUTOMATIC:
        state.table_for(name, "set_default_backend()").choice  # noqa: B018 - raises
        name = _resolve(name)
    state.set_default(name)


class use_backend:  # noqa: N801 - reads as a function, like torch.no_grad
    """Run the ops of a ``with`` block, or of a decorated function, on one backend, or fail.

    The choice holds for the current thread or asyncio task and nests. ``"auto"`` returns to the
    order of priority, ``"fastest"`` goes by the times of ``tensor-ops tune``. Do not yield inside
    the block of a generator: until the generator goes on, its caller would run on that backend too.

    Parameters
    ----------
    name : str
        A backend, an alias, ``"auto"`` or ``"fastest"``.

    Raises
    ------
    BackendUnavailableError
        If the backend is unavailable.
    BackendError
        If environment or file force another backend.
    ConfigError
        If no backend has that name.
    TypeError
        If it decorates a coroutine or generator function, whose body runs after the call.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops
    >>> with tensor_ops.use_backend("python"):
    ...     tensor_ops.silu(np.zeros(2))
    array([0., 0.])
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        name = self._name
        if name not in AUTOMATIC:
            name = _resolve(name)
            state.table_for(name, "use_backend()").choice  # noqa: B018 - raises
        # In the context, not in self: threads and tasks may share one object.
        _outer_names.set((*_outer_names.get(), state.context_name.get()))
        state.context_name.set(name)

    def __exit__(self, *exception: object) -> None:
        *outer, name = _outer_names.get()
        _outer_names.set(tuple(outer))
        state.context_name.set(name)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if not callable(function) or isinstance(function, type):
            raise TypeError(f"use_backend() decorates functions, got {function!r}")
        called = (function, type(function).__call__)  # an object may be called like a function
        if any(runs_later(each) for runs_later in _RUN_LATER for each in called):
            name = getattr(function, "__qualname__", None)
            raise TypeError(
                f"use_backend() cannot decorate {f'{name}()' if name else repr(function)}, whose "
                "body runs after the call; write 'with use_backend(...):' inside it"
            )

        @functools.wraps(function)
        def on_backend(*args: P.args, **kwargs: P.kwargs) -> R:
            with use_backend(self._name):
                return function(*args, **kwargs)

        return on_backend


def list_backends(verbose: bool = False) -> list[str]:
    """Return every known backend name; with `verbose`, print what is known about each, and aliases.

    That is its device and whether it runs programs besides ops, or why it is unavailable. Backends
    outside the effective priority list are not imported for this; they are shown as such.
    """
    names = list(dict.fromkeys([*_considered(), *KNOWN, *backends.INSTALLED]))
    if verbose:
        considered = _considered()
        width = max(map(len, [*names, *ALIASES]))
        for name in names:
            print(f"{name:{width}}  {_status(name, name in considered)}")
        for alias in ALIASES:
            name = _resolve(alias)
            print(f"{alias:{width}}  stands for {name}: {_status(name, name in considered)}")
    return names


def list_ops() -> list[str]:
    """Return the names of the ops."""
    return list(OPS)


def reload_config() -> None:
    """Read the environment and ``backend.json`` again, and probe the backends again.

    Raises
    ------
    ConfigError
        If a setting is not valid; the settings stay as they were, unless what is wrong is a
        setting of the forced backend's own.
    BackendUnavailableError
        If a backend is forced now and unavailable; it stays forced.
    """
    state.reload()
    state.enforce()


def _resolve(name: str) -> str:
    return resolve(name, backends.INSTALLED)


def _considered() -> list[str]:
    """Return the backends that may be imported without being named, in order."""
    return list(dict.fromkeys(split(name)[0] for name in _places(state.current().decision)))


def _places(decision: Decision) -> list[str]:
    """Return what a decision names, in order, with the kinds of device that it demands."""
    return list(dict.fromkeys([*decision.candidates, *decision.priority, LAST_RESORT]))


def _status(name: str, considered: bool) -> str:
    if name in backends.INSTALLED and not considered:
        return "installed, outside the priority list: not imported"
    facts = backends.info(name)
    if not facts["available"]:
        return f"unavailable: {facts['reason']}"
    version = f" {facts['version']}" if facts["version"] else ""
    device = f" on {facts['device_name']}" if facts["device_name"] else ""
    reason = f"; {facts['reason']}" if facts["reason"] else ""
    programs = "; runs programs too" if backends.runs_programs(name) else ""
    return f"available: {facts['display_name']}{version}{device}{programs}{reason}"

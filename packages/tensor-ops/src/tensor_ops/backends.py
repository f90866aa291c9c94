"""Finding, importing and probing backends; the contract they keep.

A backend is an importable module that an installed distribution names under the entry-point
group ``tensor_ops.backends``. Nothing is imported before it is asked for, and whatever goes
wrong in a backend makes that backend unavailable, with the reason kept, and nothing else.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from tensor_ops.errors import BackendError, BackendUnavailableError
from tensor_ops.names import ALIASES, AUTO, FLOOR, KNOWN, install_command

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "API_VERSION",
    "ENTRY_POINT_GROUP",
    "FAILURES",
    "INFO_KEYS",
    "INSTALLED",
    "Backend",
    "forget_unavailable",
    "info",
    "load",
    "loaded",
    "one_line",
    "require",
    "rescan",
]

API_VERSION = 1
ENTRY_POINT_GROUP = "tensor_ops.backends"

# What a backend may raise without taking more than itself down: anything, sys.exit() included;
# only the user's own interrupt passes.
FAILURES = (Exception, SystemExit)

INFO_KEYS = (
    "name",
    "display_name",
    "available",
    "reason",
    "version",
    "device_name",
    "device_count",
    "compute_capability",
    "compute_units",
    "max_memory",
    "max_shared_memory",
    "dtypes",
    "ops",
)


class Backend(NamedTuple):
    """A backend after the attempt to import and probe it.

    Attributes
    ----------
    name : str
        Its own name, never an alias.
    module : module or None
        The imported module; None if the import failed or its API_VERSION is not ours.
    reason : str or None
        Why it is unavailable; None if it is available.
    error : BaseException or None
        The exception behind `reason`, where there was one.
    is_broken : bool
        Whether it is installed and failed, rather than absent or without a device.
    """

    name: str
    module: ModuleType | None
    reason: str | None
    error: BaseException | None = None
    is_broken: bool = False


class _InstalledNames(Collection[str]):
    """The names under our entry-point group; the metadata is read on the first question."""

    def __contains__(self, name: object) -> bool:
        return name in _entry_points()

    def __iter__(self) -> Iterator[str]:
        return iter(_entry_points())

    def __len__(self) -> int:
        return len(_entry_points())


INSTALLED: Collection[str] = _InstalledNames()


def load(name: str) -> Backend:
    """Import and probe a backend, and return the outcome, which is kept.

    Raises
    ------
    BackendError
        Only within the backend's own import, which cannot use that backend yet.
    """
    backend = _backends.get(name)
    if backend is None:
        # No lock is held while a backend is imported: that import may wait for another thread,
        # which may be waiting for us. Two threads may both probe; the first outcome stays.
        backend = _backends.setdefault(name, _load(name))
    return backend


def require(name: str, wanted_by: str) -> Backend:
    """Return a backend that is available.

    Raises
    ------
    BackendUnavailableError
        Naming the backend, who asked for it, the reason and the install command.
    """
    backend = load(name)
    if backend.reason is None:
        return backend
    message = f"backend {name!r} ({wanted_by}) is unavailable: {backend.reason}"
    raise BackendUnavailableError(message, name) from backend.error


def loaded() -> list[Backend]:
    """Return the backends that this process has tried to import so far."""
    return list(_backends.values())


def rescan() -> None:
    """Look for installed backends anew."""
    importlib.invalidate_caches()
    _entry_points.cache_clear()


def forget_unavailable() -> None:
    """Let backends that were unavailable be tried again."""
    for backend in loaded():
        if backend.reason is not None:
            _backends.pop(backend.name, None)


def info(name: str) -> dict[str, Any]:
    """Return the documented keys for a backend, available or not."""
    backend = load(name)
    known = KNOWN.get(name)
    facts: dict[str, Any] = dict.fromkeys(INFO_KEYS)
    facts["display_name"] = known.display_name if known else name
    if backend.module is not None:
        try:
            given = backend.module.info()
            facts.update((key, value) for key, value in given.items() if key in INFO_KEYS)
        except FAILURES as error:
            facts["reason"] = f"its info() failed: {one_line(error)}"
    facts.update(name=name, available=backend.reason is None)
    facts["reason"] = backend.reason or facts["reason"]
    return facts


def one_line(error: BaseException) -> str:
    """Return the type and message of an exception on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


# A plug-in under one of these names could never be chosen.
_RESERVED = frozenset({AUTO, FLOOR, *ALIASES})
_backends: dict[str, Backend] = {}


@cache
def _entry_points() -> dict[str, tuple[EntryPoint, ...]]:
    # Imported here because it costs more than the rest of this package.
    from importlib.metadata import entry_points

    points: Iterable[EntryPoint]
    try:
        points = entry_points(group=ENTRY_POINT_GROUP)
    except Exception:
        points = _readable_entry_points()
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in points:
        if point.name not in _RESERVED:
            found.setdefault(point.name, {})[point.value] = point
    return {name: tuple(points.values()) for name, points in found.items()}


def _readable_entry_points() -> Iterator[EntryPoint]:
    """Yield what `entry_points` would, had one broken distribution not ended it for all."""
    from importlib.metadata import distributions

    for distribution in distributions():
        try:
            yield from distribution.entry_points.select(group=ENTRY_POINT_GROUP)
        except Exception:
            continue


def _load(name: str) -> Backend:
    if name == FLOOR:
        from tensor_ops import numpy_backend

        return Backend(name, numpy_backend, None)
    points = _entry_points().get(name, ())
    if not points:
        return Backend(name, None, _not_installed(name))
    if len(points) > 1:
        claims = " and ".join(sorted(f"{_distribution(point)} ({point.value})" for point in points))
        reason = f"{claims} claim this name; uninstall all but one of them"
        return Backend(name, None, reason, is_broken=True)
    return _import(name, points[0])


def _import(name: str, point: EntryPoint) -> Backend:
    try:
        module = point.load()
    except FAILURES as error:
        reason = f"importing {point.value} failed: {one_line(error)}"
        return Backend(name, None, reason, error, is_broken=True)
    if getattr(getattr(module, "__spec__", None), "_initializing", False):
        raise BackendError(
            f"backend {name!r} cannot be used yet: {point.value} is still being imported, and "
            "that import itself asks tensor_ops for it"
        )
    try:
        version = getattr(module, "API_VERSION", None)
        if not isinstance(version, int) or version != API_VERSION:
            return Backend(name, None, _wrong_version(point, version), is_broken=True)
        probed = module.probe()
        if probed["available"]:
            return Backend(name, module, None)
        reason = str(probed.get("reason") or "its probe() found no usable device")
        return Backend(name, module, reason)
    except FAILURES as error:
        reason = f"its probe() failed: {one_line(error)}"
        return Backend(name, module, reason, error, is_broken=True)


def _not_installed(name: str) -> str:
    # Imported here because only what is missing needs it.
    from tensor_ops import installed

    known, fact = KNOWN[name], installed.about(name)
    noted = f" ({fact})" if fact else ""
    if known.served_by in _entry_points():
        return f"no backend of its own; {known.hint}{noted}: {known.instead}"
    hint = f"; {known.hint}" if known.hint else ""
    return f"not installed{hint}{noted}; install it with: {install_command(name)}"


def _wrong_version(point: EntryPoint, version: object) -> str:
    distribution = _distribution(point)
    return (
        f"{distribution} has API_VERSION {version!r} and this tensor-ops wants {API_VERSION}; "
        f"upgrade both: pip install -U tensor-ops {distribution}"
    )


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value

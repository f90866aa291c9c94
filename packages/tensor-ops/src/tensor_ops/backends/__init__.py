"""Finding, importing and probing backends.

A backend is an importable module that an installed distribution names under the entry-point
group ``tensor_ops.backends``. Nothing is imported before it is asked for, and whatever goes
wrong in a backend makes that backend unavailable, with the reason kept, and nothing else.

Tested by tests/plugins/.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from tensor_ops import entry_points
from tensor_ops.backends import contract, numpy_backend
from tensor_ops.backends.names import ALIASES, AUTOMATIC, KNOWN, LAST_RESORT, split
from tensor_ops.errors import BackendError, BackendUnavailableError, ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "ENTRY_POINT_GROUP",
    "FAILURES",
    "INSTALLED",
    "Backend",
    "configuration",
    "forget_probes",
    "info",
    "kind_of_device",
    "load",
    "one_line",
    "probe_again",
    "reason_against",
    "require",
    "rescan",
    "runs_programs",
    "installed_points",
    "loaded",
]

ENTRY_POINT_GROUP = "tensor_ops.backends"

# Any of these disables the backend that raises it, and nothing else. KeyboardInterrupt is not among
# them: the user's interrupt must end the call.
FAILURES = (Exception, SystemExit)


class Backend(NamedTuple):
    """A backend after the attempt to import and probe it.

    Attributes
    ----------
    name : str
        Its own name, never an alias; with the kind of device that was demanded, if one was.
    module : module or None
        The imported module; None if the import failed or its API_VERSION is not ours.
    reason : str or None
        Why it is unavailable; None if it is available.
    error : BaseException or None
        The exception behind `reason`, where there was one.
    is_broken : bool
        Whether it is installed and failed, rather than absent or without a device.
    kind : str or None
        The kind of the device that it computes host arrays on, if it says so.
    wrong_setting : str or None
        What is wrong with a setting of its own, which is an error of the configuration.
    capabilities : Capabilities
        What it declares; the defaults where it declares nothing.
    """

    name: str
    module: ModuleType | None
    reason: str | None
    error: BaseException | None = None
    is_broken: bool = False
    kind: str | None = None
    wrong_setting: str | None = None
    capabilities: contract.Capabilities = contract.Capabilities()


class _InstalledNames(Collection[str]):
    """The names under our entry-point group; the metadata is read on the first question."""

    def __contains__(self, name: object) -> bool:
        return name in installed_points()

    def __iter__(self) -> Iterator[str]:
        return iter(installed_points())

    def __len__(self) -> int:
        return len(installed_points())


INSTALLED: Collection[str] = _InstalledNames()


def load(name: str) -> Backend:
    """Import and probe a backend, and return the outcome, which is kept.

    Raises
    ------
    BackendError
        Only within the backend's own import, which cannot use that backend yet.
    """
    backend = loaded.get(name)
    if backend is None:
        # No lock is held while a backend is imported: that import may wait for another thread,
        # which may be waiting for us. Two threads may both probe; the first outcome stays.
        backend = loaded.setdefault(name, _load(name))
    return backend


def reason_against(name: str) -> str | None:
    """Return why a backend that is selected cannot run, None if it can.

    Raises
    ------
    ConfigError
        If a setting of the backend's own is wrong: what it was to say is not known, so that
        nothing else may run in its place.
    """
    backend = load(name)
    if backend.wrong_setting is not None:
        raise ConfigError(f"backend {name!r}: {backend.wrong_setting}")
    return backend.reason


def kind_of_device(name: str) -> str | None:
    """Return the kind of device that a backend computes host arrays on, if it says so."""
    return load(name).kind


def runs_programs(name: str) -> bool:
    """Return whether a backend runs whole programs where it is available.

    Of a backend that cannot be imported it is what is known. Nothing speaks against a plug-in, nor
    against a name without a backend of its own, the reason for which is another.
    """
    backend = load(name)
    if backend.module is not None:
        return backend.capabilities.runs_programs
    known = KNOWN.get(split(name)[0])
    return known is None or known.runs_programs or bool(known.served_by)


def require(name: str, wanted_by: str) -> Backend:
    """Return a backend that is available.

    Raises
    ------
    BackendUnavailableError
        Naming the backend, who asked for it, the reason and the install command.
    ConfigError
        As `reason_against`.
    """
    reason, backend = reason_against(name), load(name)
    if reason is None:
        return backend
    message = f"backend {name!r} ({wanted_by}) is unavailable: {reason}"
    raise BackendUnavailableError(message, name) from backend.error


def rescan() -> None:
    """Look for installed backends anew."""
    importlib.invalidate_caches()
    installed_points.cache_clear()


def forget_probes() -> None:
    """Forget what the probes found, so that backends are probed again with their own new settings.

    A backend that was available and has been uninstalled since stays as it was imported.
    """
    for name, backend in list(loaded.items()):
        if backend.reason is not None or split(name)[0] in INSTALLED:
            loaded.pop(name, None)


def probe_again() -> None:
    """Forget what the probes found, in a forked child: not every device survives a fork."""
    _lost_by_fork.update(name for name, backend in loaded.items() if backend.reason is None)
    loaded.clear()


def info(name: str) -> dict[str, Any]:
    """Return the documented keys for a backend, available or not."""
    backend = load(name)
    known = KNOWN.get(split(name)[0])
    facts: dict[str, Any] = dict.fromkeys(contract.INFO_KEYS)
    if backend.module is not None:
        try:
            given = backend.module.info()
            found = {key: value for key, value in given.items() if key in contract.INFO_KEYS}
            _require_plain(found)
            facts.update(found)
        except FAILURES as error:
            facts["reason"] = f"its info() failed: {one_line(error)}"
    facts.update(name=backend.name, available=backend.reason is None)
    facts["reason"] = backend.reason or facts["reason"]
    facts["display_name"] = known.display_name if known else facts["display_name"] or name
    facts.update((key, facts[key] or 0) for key in contract.NUMBER_KEYS)
    return facts


def _require_plain(facts: dict[str, Any]) -> None:
    """Raise TypeError for a fact of a type that its key does not have, or that JSON does not."""
    import json

    for key in contract.NUMBER_KEYS:
        if not isinstance(facts.get(key), int | float | None):
            raise TypeError(f"{key} must be a number, got {facts[key]!r}")
    json.dumps(facts)


def configuration(name: str) -> str | None:
    """Return what of a backend was compiled, None where it does not say.

    That is what the function of this name in its module returns, which a backend need not have.
    """
    return _said(name, "configuration")


def program_note(name: str) -> str | None:
    """Return what a backend says of its decode programs, by its function of this name."""
    return _said(name, "program_note")


def _said(name: str, function: str) -> str | None:
    says = getattr(load(name).module, function, None)
    if not callable(says):
        return None
    try:
        said = says()
    except FAILURES as error:
        return f"its {function}() failed: {one_line(error)}"
    return None if said is None else str(said)


def one_line(error: BaseException) -> str:
    """Return the type and message of an exception on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


# A plug-in under one of these names, or with a kind of device in its name, could never be chosen.
_RESERVED = frozenset({*AUTOMATIC, LAST_RESORT, *ALIASES})
loaded: dict[str, Backend] = {}
# The backends that were available in the process that this one was forked from.
_lost_by_fork: set[str] = set()


@cache
def installed_points() -> dict[str, tuple[EntryPoint, ...]]:
    found = entry_points.named(ENTRY_POINT_GROUP)
    return {name: found[name] for name in found if name not in _RESERVED and ":" not in name}


def _load(name: str) -> Backend:
    backend, kind = split(name)
    if kind:
        return _on_device(load(backend), name, kind)
    if name == LAST_RESORT:
        return _probe(name, numpy_backend)
    points = installed_points().get(name, ())
    if not points:
        return Backend(name, None, _not_installed(name))
    if len(points) > 1:
        return Backend(name, None, entry_points.claims(points), is_broken=True)
    return _import(name, points[0])


def _on_device(backend: Backend, name: str, kind: str) -> Backend:
    """Return a backend under a name that demands a kind of device."""
    reason = backend.reason
    if reason is None and backend.kind != kind:
        is_known = backend.kind or "of a kind that it does not tell"
        reason = f"its device is {is_known}, not {kind}"
    return backend._replace(name=name, reason=reason)


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
        if not isinstance(version, int) or version != contract.API_VERSION:
            return Backend(name, None, _wrong_version(point, version), is_broken=True)
        return _probe(name, module)
    except FAILURES as error:
        reason = f"its probe() failed: {one_line(error)}"
        return Backend(name, module, reason, error, is_broken=True)


def _probe(name: str, module: ModuleType) -> Backend:
    try:
        capabilities = contract.capabilities_of(vars(module).get("CAPABILITIES", {}))
    except (TypeError, ValueError) as error:
        reason = f"what it declares is wrong: {error}"
        return Backend(name, module, reason, error, is_broken=True)
    probed = module.probe()
    only = capabilities.devices[0] if len(capabilities.devices) == 1 else None
    kind, wrong = probed.get("kind", only), probed.get("wrong_setting")
    wrong_setting = str(wrong) if wrong else None
    found = Backend(name, module, None, None, False, kind, wrong_setting, capabilities)
    if probed["available"] and wrong_setting is None:
        return found
    reason = probed.get("reason") or wrong_setting or "its probe() found no usable device"
    return found._replace(reason=str(reason), is_broken=name in _lost_by_fork)


def _not_installed(name: str) -> str:
    if name not in KNOWN:  # a plug-in's, which was installed when it was named
        return "it has been uninstalled"
    # Imported here because only what is missing needs it.
    from tensor_ops.backends import installed

    known, fact = KNOWN[name], installed.about(name)
    noted = f" ({fact})" if fact else ""
    if known.served_by in installed_points():
        return f"no backend of its own; {known.hint}{noted}: {known.instead}"
    hint = f"; {known.hint}" if known.hint else ""
    missing = f": no module named {known.module!r}" if known.module else ""
    return f"not installed{missing}{hint}{noted}; {installed.how_to_install(known.extra)}"


def _wrong_version(point: EntryPoint, version: object) -> str:
    distribution = entry_points.distribution_of(point)
    return (
        f"{distribution} has API_VERSION {version!r} and this tensor-ops wants "
        f"{contract.API_VERSION}; install versions of both that go together"
    )

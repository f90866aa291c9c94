"""``backend.json`` and the ``TENSOR_OPS_*`` environment variables: reading, checking, writing."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tensor_ops.backends.names import AUTO, AUTOMATIC, DEFAULT_PRIORITY, did_you_mean, resolve
from tensor_ops.config import location
from tensor_ops.config.selection import ConfigLevel
from tensor_ops.errors import ConfigError
from tensor_ops.files import trusted

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "DEFAULTS",
    "Config",
    "ReadOnlyFileError",
    "environment_levels",
    "load",
    "repeated",
    "save",
]

ENV_FORCE = "TENSOR_OPS_FORCE_BACKEND"
ENV_PREFERRED = "TENSOR_OPS_BACKEND"
ENV_PRIORITY = "TENSOR_OPS_BACKEND_PRIORITY"

DEFAULTS: dict[str, Any] = {
    "preferred_backend": AUTO,
    "backend_priority": list(DEFAULT_PRIORITY),
    "force_backend": None,
}
IGNORED_KEYS = ("$schema", "description")


class ReadOnlyFileError(ConfigError):
    """A ``backend.json`` that is marked as read-only."""


class Config(NamedTuple):
    """The content of one ``backend.json``; a key that the file lacks is None.

    Names are kept as the user wrote them; `level` resolves aliases.
    """

    path: Path | None = None
    preferred_backend: str | None = None
    backend_priority: tuple[str, ...] | None = None
    force_backend: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the three settings with the defaults filled in, as the file would hold them."""
        priority = self.backend_priority or DEFAULTS["backend_priority"]
        return {
            "preferred_backend": self.preferred_backend or AUTO,
            "backend_priority": list(priority),
            "force_backend": self.force_backend,
        }

    def level(self, installed: Collection[str]) -> ConfigLevel:
        """Return what this file asks of the selection."""
        preferred, priority = self.preferred_backend, self.backend_priority
        if preferred not in (None, *AUTOMATIC):
            preferred = resolve(str(preferred), installed)
        own_names = (resolve(name, installed) for name in priority or ())
        return ConfigLevel(
            source=str(self.path),
            force=self.force_backend and resolve(self.force_backend, installed),
            preferred=preferred,
            priority=priority and tuple(dict.fromkeys(own_names)),
            lift=f'set "force_backend" to null in {self.path}, or run '
            "'tensor-ops configure_backend --backend=auto'",
        )


def load(path: Path, installed: Collection[str]) -> Config:
    """Read and validate a ``backend.json``.

    Raises
    ------
    ConfigError
        Naming the file, the line and the nearest valid key or backend; or, on POSIX systems, for
        a file that others can write.
    """
    return _validated(path, _read_text(path), installed)


def save(
    path: Path,
    changes: Mapping[str, Any],
    installed: Collection[str],
    *,
    replace_read_only: bool = False,
) -> Config:
    """Write `changes` into the file at `path`, keeping every other key, and return the result.

    The file is replaced as a whole or not at all; an existing file that is not valid, or that is
    read-only unless `replace_read_only`, is left as it is. A new file has no `backend_priority`
    unless that is among the changes, and None takes it out of the file: an order that nobody wrote
    is the built-in one.
    """
    import json

    content: dict[str, Any] = {"preferred_backend": AUTO, "force_backend": None}
    if location.exists(path):
        path = path.resolve()
        if not (replace_read_only or _is_writable(path)):
            raise ReadOnlyFileError(f"{path}: is read-only; --force-write replaces it all the same")
        load(path, installed)
        content = json.loads(_read_text(path))
    content.update(changes)
    if content.get("backend_priority", ()) is None:
        del content["backend_priority"]
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    saved = _validated(path, text, installed)  # before anything is touched
    path.parent.mkdir(parents=True, exist_ok=True)
    # Whatever the umask, others may not write a new file: reading it would be an error.
    mode = path.stat().st_mode if path.exists() else 0o644 & ~_umask()
    trusted.replace(path, text, mode)
    return saved


def environment_levels(
    installed: Collection[str], environ: Mapping[str, str] = os.environ
) -> tuple[ConfigLevel, ...]:
    """Return what the environment asks for, one level for each variable, strongest first."""
    force, preferred, priority = (
        environ.get(name, "").strip() for name in (ENV_FORCE, ENV_PREFERRED, ENV_PRIORITY)
    )
    levels: list[ConfigLevel] = []
    if force:
        name = _env_name(ENV_FORCE, force, installed)
        levels.append(ConfigLevel(ENV_FORCE, force=name, lift=f"unset {ENV_FORCE}"))
    if preferred:
        if preferred not in AUTOMATIC:
            preferred = _env_name(ENV_PREFERRED, preferred, installed)
        levels.append(ConfigLevel(ENV_PREFERRED, preferred=preferred))
    if priority:
        written = [name.strip() for name in priority.split(",")]
        names = tuple(_env_name(ENV_PRIORITY, name, installed) for name in written)
        if problem := repeated(written):
            raise ConfigError(f"environment variable {ENV_PRIORITY} {problem}")
        levels.append(ConfigLevel(ENV_PRIORITY, priority=tuple(dict.fromkeys(names))))
    return tuple(levels)


def repeated(names: Sequence[str]) -> str | None:
    """Return what is wrong with a priority list that has a name twice.

    Two names of one backend are no mistake: which backend an alias stands for may depend on the
    machine, and the second place of a backend is passed over.
    """
    twice = next((name for name in names if names.count(name) > 1), None)
    return twice and f"names {twice!r} twice; name each backend once"


def _is_writable(path: Path) -> bool:
    # The mode counts too, since access() lets root write files that are marked as read-only.
    return bool(path.stat().st_mode & 0o222) and os.access(path, os.W_OK)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _validated(path: Path, text: str, installed: Collection[str]) -> Config:
    pairs = _parse(path, text)
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"{_at(path, text, key, 1)}: duplicate key {key!r}; write it once")
        if key not in DEFAULTS and key not in IGNORED_KEYS:
            hint = did_you_mean(key, DEFAULTS)
            allowed = ", ".join([*DEFAULTS, *IGNORED_KEYS])
            raise ConfigError(
                f"{_at(path, text, key)}: unknown key {key!r}; {hint}Allowed keys: {allowed}"
            )
    content = dict(pairs)
    for key, check in _CHECKS.items():
        if key in content and (problem := check(content[key], installed)):
            raise ConfigError(f"{_at(path, text, key, problem=problem)}: {key} {problem}")
    priority = content.get("backend_priority")
    return Config(
        path=path,
        preferred_backend=content.get("preferred_backend"),
        backend_priority=tuple(priority) if priority is not None else None,
        force_backend=content.get("force_backend"),
    )


def _read_text(path: Path) -> str:
    data = trusted.read(path, f"set {location.ENV_CONFIG} to a copy of your own")
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"{path}:1: starts with a byte order mark; save it as plain UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path}:{line}: is not UTF-8 ({error.reason}); save it as UTF-8"
        ) from None


def _parse(path: Path, text: str) -> list[tuple[str, Any]]:
    import json

    try:
        # Objects become lists of pairs, so that a duplicate key can be seen.
        parsed = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path}:{error.lineno}: is not valid JSON: {error.msg} (column {error.colno})"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}:1: is not valid JSON: {error}") from None
    if not isinstance(parsed, _Pairs):
        raise ConfigError(f"{path}:1: expected a JSON object, got {_json_type(parsed)}")
    return parsed


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as pairs."""


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _at(path: Path, text: str, key: str, occurrence: int = 0, problem: str = "") -> str:
    """Return "file:line" of a key in the text, or of the last of its values that is named so."""
    found = [match.start() for match in re.finditer(rf'"{re.escape(key)}"\s*:', text)]
    place = found[occurrence] if len(found) > occurrence else 0
    if named := re.search(r"'([^']*)'", problem):
        # Lists usually have one name per line; of two equal names the later one is at fault.
        value = text[place:].partition("]")[0]
        place += max(0, value.rfind(f'"{named[1]}"'))
    line = text.count("\n", 0, place) + 1
    return f"{path}:{line}"


def _check_preferred(value: Any, installed: Collection[str]) -> str | None:
    if value in AUTOMATIC:
        return None
    return _check_name(value, installed, "a backend name, 'auto' or 'fastest'")


def _check_force(value: Any, installed: Collection[str]) -> str | None:
    if value in AUTOMATIC:
        return f"must be one backend or null, not {value!r}"
    return None if value is None else _check_name(value, installed, "a backend name or null")


def _check_priority(value: Any, installed: Collection[str]) -> str | None:
    if not isinstance(value, list) or isinstance(value, _Pairs):
        return f"must be a list of backend names, got {_json_type(value)}"
    if not value:
        return "must name at least one backend, got an empty list"
    for place, name in enumerate(value, 1):
        if not isinstance(name, str):
            return f"must hold backend names alone, got {_json_type(name)} at place {place}"
        if problem := _check_name(name, installed, "a backend name"):
            return problem
    return repeated(value)


def _check_name(value: Any, installed: Collection[str], expected: str) -> str | None:
    if not isinstance(value, str):
        return f"must be {expected}, got {_json_type(value)}"
    try:
        resolve(value, installed)
    except ConfigError as error:
        return f"is wrong: {error}"
    return None


_CHECKS = {
    "preferred_backend": _check_preferred,
    "backend_priority": _check_priority,
    "force_backend": _check_force,
}


def _json_type(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    kinds = {_Pairs: "an object", list: "a list", str: "a string", int: "a number"}
    return kinds.get(type(value), "a number")


def _env_name(variable: str, name: str, installed: Collection[str]) -> str:
    try:
        return resolve(name, installed)
    except ConfigError as error:
        raise ConfigError(f"environment variable {variable}: {error}") from None

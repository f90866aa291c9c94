"""``backend.json`` and the ``TENSOR_OPS_*`` environment variables: finding, reading, writing."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tensor_ops.errors import ConfigError
from tensor_ops.names import AUTO, DEFAULT_PRIORITY, did_you_mean, resolve
from tensor_ops.selection import Wishes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "DEFAULTS",
    "ENV_CONFIG",
    "Config",
    "default_path",
    "environment_wishes",
    "find",
    "load",
    "save",
]

ENV_CONFIG = "TENSOR_OPS_CONFIG"
ENV_FORCE = "TENSOR_OPS_FORCE_BACKEND"
ENV_PREFERRED = "TENSOR_OPS_BACKEND"
ENV_PRIORITY = "TENSOR_OPS_BACKEND_PRIORITY"

DEFAULTS: dict[str, Any] = {
    "preferred_backend": AUTO,
    "backend_priority": list(DEFAULT_PRIORITY),
    "force_backend": None,
}
IGNORED_KEYS = ("$schema", "description")


class Config(NamedTuple):
    """The content of one ``backend.json``; a key that the file lacks is None.

    Names are kept as the user wrote them; `wishes` resolves aliases.
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

    def wishes(self, installed: Collection[str]) -> Wishes:
        """Return what this file asks of the selection."""
        return Wishes(
            source=str(self.path),
            force=self.force_backend and resolve(self.force_backend, installed),
            preferred=_preferred(self.preferred_backend, installed),
            priority=self.backend_priority and _resolve_all(self.backend_priority, installed),
        )


def find(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the ``backend.json`` in use, or None.

    `TENSOR_OPS_CONFIG` goes first, then ``<sys.prefix>/etc/tensor-ops``, then the user's
    configuration directory. The current directory is never searched.

    Raises
    ------
    ConfigError
        If `TENSOR_OPS_CONFIG` names a file that does not exist.
    """
    if named := environ.get(ENV_CONFIG):
        if not os.path.isfile(named):
            raise ConfigError(_not_a_file(named))
        return _path(named)
    for name in (_prefix_file(), _user_file()):
        if name is not None and os.path.isfile(name):
            return _path(name)
    return None


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file that ``configure_backend`` writes when it is given none."""
    if named := environ.get(ENV_CONFIG):
        return _path(named)
    in_virtual_environment = sys.prefix != sys.base_prefix
    found = find({})
    if found is not None:
        return found
    name = _prefix_file() if in_virtual_environment else _user_file()
    if name is None:
        raise ConfigError(
            f"no place for backend.json: the user has no home folder; set {ENV_CONFIG} to a file"
        )
    return _path(name)


def load(path: Path, installed: Collection[str]) -> Config:
    """Read and validate a ``backend.json``.

    Raises
    ------
    ConfigError
        Naming the file, the line and the nearest valid key or backend; or, on POSIX systems, for
        a file that others can write.
    """
    return _validated(path, _read_text(path), installed)


def save(path: Path, changes: Mapping[str, Any], installed: Collection[str]) -> Config:
    """Write `changes` into the file at `path`, keeping every other key, and return the result.

    The file is replaced as a whole or not at all; an existing file that is not valid is left
    as it is.
    """
    import json
    import tempfile

    path = path.resolve()
    if path.exists():
        load(path, installed)
        content = json.loads(_read_text(path))
    else:
        content = dict(DEFAULTS)
    content.update(changes)
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    saved = _validated(path, text, installed)  # before anything is touched
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        # What JSON can spell and UTF-8 cannot, half of a pair of surrogates, stays spelled out.
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # A new file is not for others to write, whatever the umask: it would be refused.
        os.chmod(temporary, path.stat().st_mode if path.exists() else 0o644 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return saved


def environment_wishes(
    installed: Collection[str], environ: Mapping[str, str] = os.environ
) -> tuple[Wishes, ...]:
    """Return what the environment asks for, one level for each variable, strongest first."""
    force, preferred, priority = (
        environ.get(name, "").strip() for name in (ENV_FORCE, ENV_PREFERRED, ENV_PRIORITY)
    )
    levels: list[Wishes] = []
    if force:
        levels.append(Wishes(ENV_FORCE, force=_env_name(ENV_FORCE, force, installed)))
    if preferred:
        name = AUTO if preferred == AUTO else _env_name(ENV_PREFERRED, preferred, installed)
        levels.append(Wishes(ENV_PREFERRED, preferred=name))
    if priority:
        names = tuple(
            _env_name(ENV_PRIORITY, name.strip(), installed) for name in priority.split(",")
        )
        if problem := _repeat(names):
            raise ConfigError(f"environment variable {ENV_PRIORITY} {problem}")
        levels.append(Wishes(ENV_PRIORITY, priority=names))
    return tuple(levels)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# Every `import tensor_ops` looks for the file and few find one: what only a file needs (json,
# pathlib) is imported once there is one, and looking is done with plain strings.


def _path(name: str) -> Path:
    from pathlib import Path

    return Path(name)


def _not_a_file(named: str) -> str:
    from shlex import quote

    if os.path.exists(named):
        return f"{ENV_CONFIG} names {named!r}, which is no regular file; name one or unset it"
    return (
        f"{ENV_CONFIG} names {named!r}, which is not a file; create it with "
        f"'tensor-ops configure_backend --config {quote(named)} --backend=auto' "
        f"or unset {ENV_CONFIG}"
    )


def _prefix_file() -> str:
    return os.path.join(sys.prefix, "etc", "tensor-ops", "backend.json")


def _user_file() -> str | None:
    if sys.platform == "linux":
        # The XDG specification, which says to ignore a relative path; importing platformdirs costs
        # as much as all of us.
        root = os.environ.get("XDG_CONFIG_HOME", "")
        root = root if os.path.isabs(root) else os.path.expanduser("~/.config")
        folder = os.path.join(root, "tensor-ops")
    else:
        import platformdirs

        folder = platformdirs.user_config_dir("tensor-ops", appauthor=False)
    # Without a home folder "~" stays as it is, and would be looked for in the current directory.
    return os.path.join(folder, "backend.json") if os.path.isabs(folder) else None


def _validated(path: Path, text: str, installed: Collection[str]) -> Config:
    pairs = _parse(path, text)
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"{_at(path, text, key, 1)}: the key {key!r} stands twice")
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
    try:
        with open(path, "rb") as file:
            _check_owner(path, os.fstat(file.fileno()))
            data = file.read()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"{path}:1: starts with a byte order mark; save it as plain UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path}:{line}: is not UTF-8 ({error.reason}); save it as UTF-8"
        ) from None


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Refuse a file that others can write: they would decide which code runs here.

    The owner of the Python environment decides that anyway.
    """
    if sys.platform == "win32":
        return
    from shlex import quote

    name = quote(str(path))
    trusted = [0, os.geteuid()]
    if os.path.isdir(sys.prefix):
        trusted.append(os.stat(sys.prefix).st_uid)
    if status.st_uid not in trusted:
        raise ConfigError(
            f"{path}: belongs to user {status.st_uid}, who is neither you nor root nor the owner "
            f"of the Python environment; take it over with 'sudo chown {os.geteuid()} {name}', or "
            f"set {ENV_CONFIG} to a copy of your own"
        )
    if status.st_mode & 0o022:
        raise ConfigError(
            f"{path}: others can write it (its mode is {status.st_mode & 0o777:o}); "
            f"take that from them with 'chmod go-w {name}'"
        )


def _parse(path: Path, text: str) -> list[tuple[str, Any]]:
    import json

    try:
        # Objects become lists of pairs, so that a key that stands twice can be seen.
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
        # A list is written one name to a line; the later of two that are the same is too many.
        value = text[place:].partition("]")[0]
        place += max(0, value.rfind(f'"{named[1]}"'))
    line = text.count("\n", 0, place) + 1
    return f"{path}:{line}"


def _check_preferred(value: Any, installed: Collection[str]) -> str | None:
    return None if value == AUTO else _check_name(value, installed, "a backend name or 'auto'")


def _check_force(value: Any, installed: Collection[str]) -> str | None:
    if value == AUTO:
        return "must be one backend or null, not 'auto'"
    return None if value is None else _check_name(value, installed, "a backend name or null")


def _check_priority(value: Any, installed: Collection[str]) -> str | None:
    if not isinstance(value, list) or isinstance(value, _Pairs):
        return f"must be a list of backend names, got {_json_type(value)}"
    if not value:
        return "must name at least one backend, got an empty list"
    for name in value:
        if problem := _check_name(name, installed, "a list of backend names"):
            return problem
    return _repeat(_resolve_all(value, installed))


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


def _preferred(name: str | None, installed: Collection[str]) -> str | None:
    return name if name is None or name == AUTO else resolve(name, installed)


def _resolve_all(names: Collection[str], installed: Collection[str]) -> tuple[str, ...]:
    return tuple(resolve(name, installed) for name in names)


def _env_name(variable: str, name: str, installed: Collection[str]) -> str:
    try:
        return resolve(name, installed)
    except ConfigError as error:
        raise ConfigError(f"environment variable {variable}: {error}") from None


def _repeat(names: tuple[str, ...]) -> str | None:
    """Return what is wrong with a priority list that names a backend twice."""
    twice = next((name for name in names if names.count(name) > 1), None)
    return twice and f"names the backend {twice!r} twice; name each once"

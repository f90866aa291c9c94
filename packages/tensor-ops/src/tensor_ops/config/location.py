"""Where ``backend.json`` is, and whether there is one.

Every `import tensor_ops` looks for the file and few find one: what only a file needs is imported
once there is one, and looking is done with plain strings.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tensor_ops.errors import ConfigError, ConfigWarning, warn_caller
from tensor_ops.files.regular import kind_of_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ENV_CONFIG",
    "default_path",
    "exists",
    "find",
    "absolute_paths",
    "prefix_file",
    "user_file",
    "user_folder",
]

ENV_CONFIG = "TENSOR_OPS_CONFIG"


def find(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the ``backend.json`` in use, or None.

    `TENSOR_OPS_CONFIG` goes first, then ``<sys.prefix>/etc/tensor-ops``, then the user's
    configuration directory. The current directory is never searched; a relative path in
    `TENSOR_OPS_CONFIG` is taken from where the process was when it was first read.

    Raises
    ------
    ConfigError
        If there is something in one of these places that is no readable file, or if
        `TENSOR_OPS_CONFIG` names a file that does not exist.

    Warns
    -----
    ConfigWarning
        If this process may not look into the user's configuration directory, which may belong to
        another user.
    """
    if named := environ.get(ENV_CONFIG):
        path = _absolute(named)
        if not exists(path, f"{ENV_CONFIG} names {named!r}, "):
            from shlex import quote

            raise ConfigError(
                f"{ENV_CONFIG} names {named!r}, which is not a file; create it with "
                f"'tensor-ops configure_backend --config {quote(named)} --backend=auto' "
                f"or unset {ENV_CONFIG}"
            )
        return _path(path)
    of_prefix, of_user = prefix_file(), user_file()
    if exists(of_prefix):
        return _path(of_prefix)
    if of_user is not None and _is_reachable(of_user) and exists(of_user):
        return _path(of_user)
    return None


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file that ``configure_backend`` writes when it is given none."""
    if named := environ.get(ENV_CONFIG):
        return _path(_absolute(named))
    in_virtual_environment = sys.prefix != sys.base_prefix
    found = find({})
    if found is not None:
        return found
    name = prefix_file() if in_virtual_environment else user_file()
    if name is None:
        raise ConfigError(
            f"no place for backend.json: the user has no home folder; set {ENV_CONFIG} to a file"
        )
    return _path(name)


def exists(path: str | os.PathLike[str], named_by: str = "") -> bool:
    """Return whether there is a file at `path`, False only if there is nothing of that name.

    Raises
    ------
    ConfigError
        If there is something else, such as a folder or a link that leads nowhere, or if it cannot
        be found out.
    """
    path = os.fspath(path)
    try:
        os.lstat(path)
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        if (link := _dangling_link(path)) is None:
            return False
        raise ConfigError(
            f"{named_by}{path}: cannot be looked at: {link} is a link to "
            f"{os.readlink(link)!r}, which is not there; bring that back or remove the link"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        may_not = isinstance(error, PermissionError)
        remedy = "give this process the right to, or " if may_not else ""
        raise ConfigError(
            f"{named_by}{path}: cannot be looked at: {reason}; {remedy}set {ENV_CONFIG} to a file "
            "that this process may read"
        ) from error
    if not stat.S_ISREG(mode):
        # It may have been named by mistake, as /dev/null or a folder, so do not suggest to delete
        # it.
        remedy = f"name a file or unset {ENV_CONFIG}" if named_by else "put a file in its place"
        raise ConfigError(f"{named_by}{path}: is {kind_of_file(mode)}, no regular file; {remedy}")
    return True


def _dangling_link(path: str) -> str | None:
    """Return the part of a missing path that is a link to nowhere, None if none is."""
    while True:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            parent = os.path.dirname(path)
            if parent == path:
                return None
            path = parent
            continue
        return path if stat.S_ISLNK(mode) and not os.path.exists(path) else None


def _is_reachable(path: str) -> bool:
    """Return whether the user's file may be looked for, and warn if not."""
    try:
        os.lstat(path)
    except PermissionError as error:
        warn_caller(
            f"{path}: cannot be looked at: {error.strerror}; it is taken for none. To be "
            f"sure which configuration holds, set {ENV_CONFIG} to a file or HOME to this user's",
            ConfigWarning,
        )
        return False
    except OSError:
        return True  # what is wrong is said by `exists`
    return True


# The absolute path for each value of TENSOR_OPS_CONFIG, as of when it was first read.
absolute_paths: dict[str, str] = {}


def _absolute(named: str) -> str:
    path = absolute_paths.get(named)
    if path is None:
        try:
            # Not os.path.abspath(), which resolves "link/.." without following the link.
            base = "" if os.path.isabs(named) else os.getcwd()
            path = absolute_paths[named] = os.path.join(base, named)
        except FileNotFoundError:
            raise ConfigError(
                f"{ENV_CONFIG} names {named!r}, but the current directory is gone; "
                "give an absolute path"
            ) from None
    return path


def _path(name: str) -> Path:
    from pathlib import Path

    return Path(name)


def prefix_file() -> str:
    return os.path.join(sys.prefix, "etc", "tensor-ops", "backend.json")


def user_file() -> str | None:
    folder = user_folder("config", "~/.config")
    return folder and os.path.join(folder, "backend.json")


def user_folder(kind: str, usual: str) -> str | None:
    """Return the folder of a kind that a user has for us, None if the user has no home folder.

    On Linux, `usual` is the folder above it where the environment names none.
    """
    if sys.platform == "linux":
        # The XDG specification says to ignore a relative path. Importing platformdirs, which knows
        # that too, would take as long as importing the rest of tensor_ops.
        root = os.environ.get(f"XDG_{kind.upper()}_HOME", "")
        root = root if os.path.isabs(root) else os.path.expanduser(usual)
        folder = os.path.join(root, "tensor-ops")
    else:
        import platformdirs

        folder = getattr(platformdirs, f"user_{kind}_dir")("tensor-ops", appauthor=False)
    # Without a home folder "~" stays as it is, and would be looked for in the current directory.
    return folder if os.path.isabs(folder) else None

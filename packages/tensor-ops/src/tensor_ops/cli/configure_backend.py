"""``tensor-ops configure_backend``: show and change ``backend.json``."""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from tensor_ops import backends, config
from tensor_ops.backends.names import (
    AUTO,
    AUTOMATIC,
    CPU,
    FASTEST,
    KNOWN,
    LAST_ON_CPUS,
    LAST_RESORT,
    resolve,
    split,
)
from tensor_ops.cli import Commands, add_command, values
from tensor_ops.command_name import COMMAND
from tensor_ops.config import location, selection, tuning_table, variables
from tensor_ops.errors import ConfigError
from tensor_ops.files.output import in_the_way

__all__ = ["add", "run"]

EXAMPLES = """\
examples:
  tensor-ops configure_backend --show
  tensor-ops configure_backend --backend=cpp
  tensor-ops configure_backend --backend=fastest
  tensor-ops configure_backend --backend=cuda --force
  tensor-ops configure_backend --priority="cpp,cuda,opencl,python"
  tensor-ops configure_backend --backend=auto --priority="opencl,cuda,cpp,python"
  tensor-ops configure_backend --backend=auto --priority=auto

Changes take effect at the next import of tensor_ops, or at tensor_ops.reload_config()."""
_DEVICES = {"gpu": "GPUs", "cpu": "CPUs", "accelerator": "accelerators"}


def add(commands: "Commands[ArgumentParser]") -> None:
    """Add this command's parser."""
    parser = add_command(
        commands,
        "configure_backend",
        run,
        help="show or change which backend runs",
        description="Show or change backend.json, which says which backend runs.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--show", "-s", action="store_true", help="print the configuration")
    parser.add_argument(
        "--backend",
        "-b",
        metavar="NAME",
        type=values.backend_or_auto,
        help="prefer this backend and force none; 'auto' takes the first of the priority order, "
        "'fastest' the one that 'tensor-ops tune' has measured to be so",
    )
    parser.add_argument(
        "--priority",
        "-p",
        metavar="LIST",
        type=values.priority,
        help="the order in which backends are tried, with commas between the names; 'auto' takes "
        "the order out of the file",
    )
    parser.add_argument(
        "--force",
        "-f",
        action="store_true",
        help="with --backend: fail, also at import, when that backend is unavailable",
    )
    parser.add_argument(
        "--force-write", action="store_true", help="replace the file even if it is read-only"
    )
    parser.add_argument(
        "--config", metavar="PATH", type=Path, help="the file, instead of the one in use"
    )


def run(arguments: Namespace) -> int:
    """Apply the changes, then show."""
    changes = _changes(arguments)
    path = (arguments.config or location.default_path()).absolute()
    if changes:
        saved = _save(path, changes, arguments.force_write)
        _tell_effect(saved, path)
    if arguments.show:
        _show(path)
    return 0


def _changes(arguments: Namespace) -> dict[str, Any]:
    """Return what to change in the file, or end with a usage error."""
    name = arguments.backend
    if arguments.force and name in (None, *AUTOMATIC):
        arguments.parser.error(
            "--force needs the backend to force: --backend=NAME --force"
            + (f"; {name!r} cannot be forced, leave --force out" if name else "")
        )
    changes: dict[str, Any] = {}
    if name is not None:
        changes["preferred_backend"] = name
        changes["force_backend"] = name if arguments.force else None
    if arguments.priority is not None:
        order = arguments.priority
        changes["backend_priority"] = None if order == AUTO else order
    if not changes and arguments.force_write:
        arguments.parser.error("--force-write needs something to write: --backend or --priority")
    if not changes and not arguments.show:
        arguments.parser.error("nothing to do: give --show, --backend or --priority")
    return changes


def _save(path: Path, changes: dict[str, Any], replace_read_only: bool) -> config.Config:
    location.exists(path)  # raises where something else than a file is there
    try:
        saved = config.save(path, changes, backends.INSTALLED, replace_read_only=replace_read_only)
    except config.ReadOnlyFileError:
        raise
    except ConfigError as error:
        raise ConfigError(f"{error}; mend or delete the file, it was left as it is") from error
    except (OSError, RuntimeError) as error:  # pathlib calls a loop of links a RuntimeError
        reason = in_the_way(path) or (isinstance(error, OSError) and error.strerror) or error
        raise ConfigError(
            f"{path} cannot be written: {reason}; nothing was changed. To keep the file elsewhere, "
            f"give --config PATH and set {location.ENV_CONFIG} to the same path"
        ) from error
    listed = ", ".join(_change(key, value) for key, value in changes.items())
    print(f"Saved {listed} in {path}")
    return saved


def _tell_effect(saved: config.Config, path: Path) -> None:
    """Say on stderr when what was saved will not do what its words suggest."""
    wanted = saved.force_backend or saved.preferred_backend
    if wanted == FASTEST:
        decision = selection.decide([saved.level(backends.INSTALLED)])
        if reason := tuning_table.use(decision.candidates).reason:
            _note(f"{reason}. Until then 'fastest' is the same as 'auto'")
    elif wanted is not None and wanted not in AUTOMATIC:
        _tell_if_unavailable(resolve(wanted, backends.INSTALLED), saved)
    if not _is_in_use(path):
        _note(f"{path} is not the file in use; it is once {location.ENV_CONFIG} names it")
    if overriding := _environment(saved):
        _note(f"environment variables go before the file: {overriding}")


def _tell_if_unavailable(name: str, saved: config.Config) -> None:
    reason = backends.load(name).reason
    if reason is None:
        return
    if saved.force_backend is not None:
        outcome = "'import tensor_ops' raises ImportError"
    else:
        decision = selection.decide([saved.level(backends.INSTALLED)])
        choice = selection.choose_for(
            decision, lambda other: backends.load(other).reason, backends.kind_of_device
        )
        outcome = f"{choice.backend!r} runs instead, with a warning"
    _note(f"backend {name!r} is unavailable here: {reason}. As long as it is, {outcome}")


def _show(path: Path) -> None:
    """Print what the file at a path says, and raise what ``import tensor_ops`` would of all else.

    That is a `ConfigError` of the environment, which may name a file that is not there.
    """
    if path == location.default_path().absolute():
        location.find()
    exists = location.exists(path)
    saved = config.load(path, backends.INSTALLED) if exists else config.Config()
    settings = saved.as_dict()
    print("Current Backend Configuration:")
    print(f"  Preferred backend: {settings['preferred_backend']}")
    print(f"  Force backend: {settings['force_backend']}")
    print(f"  Priority order: {', '.join(settings['backend_priority'])}")
    print()
    print(f"Configuration file: {path}")
    if not exists:
        print("The file does not exist yet; these are the defaults.")
    if list(saved.backend_priority or ()) == config.DEFAULTS["backend_priority"]:
        print("The file has this order, which is the built-in one; --priority=auto takes it out.")
    if exists and not _is_in_use(path):
        print(f"It is not the file in use; it is once {location.ENV_CONFIG} names it.")
    if overriding := _environment(saved):
        print(f"Environment variables go before the file: {overriding}")
    for name, told in variables.unread().items():
        print(f"{name}: {told}")
    print()
    print("The entries of the order stand for:")
    entries = _entries(settings["backend_priority"])
    width = max(map(len, entries))
    for entry, meaning in entries.items():
        print(f"  {entry:{width}}  {meaning}")
    config.environment_levels(backends.INSTALLED)


def _entries(order: list[str]) -> dict[str, str]:
    """Return what each entry of a priority order stands for, with what is added to it."""
    entries: dict[str, str] = {}
    seen: dict[str, str] = {}
    for entry in order:
        name = resolve(entry, backends.INSTALLED)
        if name in seen:
            entries[entry] = f"the same as {seen[name]}, so passed over"
        else:
            seen[name] = entry
            entries[entry] = _meaning(entry, name)
    if LAST_RESORT not in seen:
        entries[LAST_RESORT] = f"{_meaning(LAST_RESORT, LAST_RESORT)}, which every order ends with"
    return entries


def _meaning(entry: str, name: str) -> str:
    backend, kind = split(name)
    known = KNOWN.get(backend)
    words = known.display_name if known else "a plug-in"
    if known and known.served_by:
        words += f", for which there is no backend: {known.hint}"
    if kind:
        words += f" on {_DEVICES[kind]} alone"
    elif name == LAST_ON_CPUS:
        words += " on other devices than CPUs; on a CPU, after the others "
        words += f"('{name}:{CPU}' gives it a place)"
    return words if split(entry)[0] == backend else f"{name}: {words}"


def _is_in_use(path: Path) -> bool:
    try:
        found = location.find()
    except ConfigError:
        return False
    return found is not None and found.exists() and found.samefile(path)


def _environment(saved: config.Config) -> str:
    """Return the environment variables that override the file, as NAME=value."""
    # Only a force overrides the force of the file.
    names = [config.ENV_FORCE]
    if saved.force_backend is None:
        names += [config.ENV_PREFERRED, config.ENV_PRIORITY]
    values = {name: os.environ.get(name, "").strip() for name in names}
    return ", ".join(f"{name}={value}" for name, value in values.items() if value)


def _change(key: str, value: Any) -> str:
    if key == "backend_priority" and value is None:
        return "no backend_priority"
    return f"{key} = {','.join(value) if isinstance(value, list) else value}"


def _note(text: str) -> None:
    print(f"{COMMAND}: note: {text}", file=sys.stderr)

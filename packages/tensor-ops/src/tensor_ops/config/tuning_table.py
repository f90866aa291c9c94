"""The measured times behind the preferred backend ``fastest``: the table, its file, its answers.

``tensor-ops tune`` makes the table (see `tuning`). It is kept in the user's cache and holds for
the machine, the devices, the drivers and the versions that it was measured with, and for no others.
"""

import json
import math
import os
import stat
import sys
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tensor_ops import backends, machine
from tensor_ops.backends import installed
from tensor_ops.backends.names import split
from tensor_ops.config import location
from tensor_ops.config.tuning_entries import Entry, Ranking, ranking_of
from tensor_ops.errors import ConfigError, TensorOpsError
from tensor_ops.files import trusted
from tensor_ops.files.regular import kind_of_file

__all__ = [
    "Entry",
    "Ranking",
    "Table",
    "TableError",
    "Tuning",
    "backend_facts",
    "default_path",
    "find",
    "fitting",
    "machine_facts",
    "misfit",
    "read",
    "use",
    "write",
]

# Increased with every change of the file that an older tensor-ops would misread.
FORMAT = 2
TUNE = "tensor-ops tune"
# In seconds: JSON can hold numbers that are no time of a call, and that no float holds.
LONGEST = 1e9
# Keys of a backend's info() on which its times depend, besides the machine.
BACKEND_KEYS = ("version", "device_name", "compute_units")


class TableError(TensorOpsError):
    """The file of a table cannot be used; the message says why."""


@dataclass(frozen=True)
class Table:
    """Measured times, and what they depend on."""

    # See `machine_facts`.
    machine: Mapping[str, Any]
    # See `backend_facts`, by backend.
    backends: Mapping[str, Mapping[str, Any]]
    entries: tuple[Entry, ...]

    def limits(self, op: str, dtype: str) -> list[float]:
        """Return the sizes at which one measured size hands over to the next.

        They are the geometric means of neighbours: the nearest on a logarithmic scale decides.
        """
        sizes = list(self._by_size.get((op, dtype), ()))
        return [math.sqrt(a * b) for a, b in pairwise(sizes)]

    def rankings(self, op: str, dtype: str) -> list[Ranking]:
        """Return a ranking for each measured size, one more than there are `limits`."""
        sizes = self._by_size.get((op, dtype), {})
        return [ranking_of(entries, size) for size, entries in sizes.items()]

    def ranking(self, op: str, dtype: str, size: int | None) -> Ranking | None:
        """Return the backends by their times for an op, dtype and number of elements.

        With `size` None the times are means over all sizes. The variants of an op count alike.
        """
        sizes = self._by_size.get((op, dtype))
        if not sizes:
            return None
        if size is None:
            return ranking_of([each for entries in sizes.values() for each in entries], None)
        return self.rankings(op, dtype)[bisect_left(self.limits(op, dtype), size)]

    @cached_property
    def _by_size(self) -> dict[tuple[str, str], dict[int, list[Entry]]]:
        """The entries by op and dtype, then by size, the smallest first."""
        found: dict[tuple[str, str], dict[int, list[Entry]]] = {}
        for entry in sorted(self.entries, key=lambda each: each.size):
            op = entry.op.partition(":")[0]
            sizes = found.setdefault((op, entry.dtype), {})
            sizes.setdefault(entry.size, []).append(entry)
        return found

    def updated(self, entries: Iterable[Entry]) -> tuple[Entry, ...]:
        """Return the entries with newer ones in the places of those of the same case."""
        by_case = {(each.op, each.dtype, each.shape): each for each in self.entries}
        by_case |= {(each.op, each.dtype, each.shape): each for each in entries}
        return tuple(by_case.values())


class Tuning(NamedTuple):
    """The table to go by, or why there is none."""

    table: Table | None
    # Why there is no table; empty if there is one.
    reason: str = ""
    # Whether a file is there and cannot be used.
    is_broken: bool = False


def default_path() -> Path | None:
    """Return the file of the table, in the user's cache; None if the user has no home folder."""
    folder = location.user_folder("cache", "~/.cache")
    return Path(folder, "tuning.json") if folder else None


def use(candidates: Collection[str]) -> Tuning:
    """Return the table of this machine, or why it has none; see `fitting`."""
    return fitting(find(), candidates)


def find() -> Tuning:
    """Return the table in the user's cache, whatever it was measured on, or why there is none."""
    path = default_path()
    if path is None:
        return Tuning(None, f"no table: the user has no home folder to keep that of '{TUNE}' in")
    try:
        table = read(path)
    except TableError as error:
        return Tuning(None, f"{error}; run '{TUNE}' again", is_broken=True)
    return Tuning(table) if table else Tuning(None, f"no table: run '{TUNE}'")


def fitting(found: Tuning, candidates: Collection[str]) -> Tuning:
    """Return the table if it holds here, else why it does not.

    Of its backends the candidates are imported, to be asked about their devices and versions.
    """
    reason = found.table and misfit(found.table, candidates)
    if not reason:
        return found
    return Tuning(None, f"the table does not fit: {reason}; run '{TUNE}' again", is_broken=True)


def read(path: Path) -> Table | None:
    """Return the table in a file, None if there is no such file.

    Raises
    ------
    TableError
        If the file is not a table or cannot be read, or if others can write it.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TableError(f"{path}: cannot be looked at: {error.strerror or error}") from error
    if not stat.S_ISREG(mode):  # opening a pipe would wait for ever
        kind = kind_of_file(mode)
        raise TableError(f"{path}: is {kind}, no regular file; move it away")
    try:
        data = trusted.read(path, "delete it")
    except ConfigError as error:
        raise TableError(str(error)) from error
    try:
        return _table(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        message = f"{path}: is not a table of '{TUNE}': {backends.one_line(error)}"
        raise TableError(message) from error


def write(path: Path, table: Table) -> None:
    """Write a table, as a whole or not at all, for nobody but its owner to read or write."""
    content = {
        "format": FORMAT,
        "machine": table.machine,
        "backends": table.backends,
        "entries": [each._asdict() | {"intervals": dict(each.intervals)} for each in table.entries],
    }
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    trusted.replace(path, json.dumps(content, indent=1) + "\n", 0o600)


def machine_facts() -> dict[str, Any]:
    """Return what every backend's times depend on."""
    return machine.processor() | {"tensor_ops": installed.version_of("tensor-ops")}


def backend_facts(name: str) -> dict[str, Any]:
    """Return what the times of an available backend depend on.

    Besides device, driver and version these are the environment variables of the backend's own,
    such as ``TENSOR_OPS_CPP_ISA``.
    """
    facts, prefix = backends.info(name), f"TENSOR_OPS_{name.upper()}_"
    own = sorted(f"{key}={value}" for key, value in os.environ.items() if key.startswith(prefix))
    found = {key: facts[key] for key in BACKEND_KEYS}
    return found | {"driver": _driver(name), "variables": " ".join(own) or None}


def misfit(table: Table, candidates: Collection[str]) -> str | None:
    """Return why a table does not hold here, None if it does.

    A backend that is unavailable, or no candidate, does not matter: it does not run.
    """
    if reason := _difference(table.machine, machine_facts()):
        return reason
    names = {split(name)[0] for name in candidates}
    # A backend with times but without facts was measured on an unknown device, which never fits.
    unknown: dict[str, Mapping[str, Any]] = {
        name: {} for entry in table.entries for name in entry.seconds
    }
    for name, facts in (unknown | dict(table.backends)).items():
        if name not in names or backends.load(name).reason is not None:
            continue
        if reason := _difference(facts, backend_facts(name)):
            return f"backend {name!r}: {reason}"
    return None


def _driver(name: str) -> str | None:
    """Return the version of a backend's driver, if it has one and says so."""
    version = getattr(backends.load(name).module, "driver_version", None)
    try:
        return str(version()) if callable(version) else None
    except backends.FAILURES as error:
        return f"failed: {backends.one_line(error)}"


def _difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    for key, value in now.items():
        if then.get(key) != value:
            return f"{key} was {then.get(key)!r} and is {value!r}"
    return None


def _table(content: Any) -> Table:
    """Return the table that parsed JSON stands for, or raise what shows that it is none."""
    if content["format"] != FORMAT:
        raise ValueError(f"its format is {content['format']!r}, this tensor-ops has {FORMAT}")
    entries = tuple(_entry(each) for each in content["entries"])
    facts = {name: dict(each) for name, each in content["backends"].items()}
    return Table(dict(content["machine"]), facts, entries)


def _entry(content: Any) -> Entry:
    entry = Entry(**content)
    texts = (entry.op, entry.dtype, entry.date, *entry.wrong, *entry.wrong.values())
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"not a name or a reason: {texts}")
    is_shape = all(type(size) is int and size > 0 for size in entry.shape)
    if not (is_shape and entry.size <= sys.maxsize):
        raise ValueError(f"not a shape: {entry.shape}")
    intervals = {name: (low, high) for name, (low, high) in entry.intervals.items()}
    if any(low > high for low, high in intervals.values()):
        raise ValueError(f"not intervals: {intervals}")
    for seconds in (*entry.seconds.values(), *chain.from_iterable(intervals.values())):
        if not (type(seconds) in (float, int) and 0 < seconds < LONGEST):
            raise ValueError(f"not a time: {seconds!r}")
    if type(entry.is_disturbed) is not bool:
        raise TypeError(f"not true or false: {entry.is_disturbed!r}")
    return entry._replace(
        shape=tuple(entry.shape), seconds=dict(entry.seconds), intervals=intervals
    )

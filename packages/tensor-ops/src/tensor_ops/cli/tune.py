"""``tensor-ops tune``: measure which backend is the fastest, for who prefers ``fastest``."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tensor_ops.backends.names import split
from tensor_ops.cli import Commands, add_command, cases, values
from tensor_ops.command_name import COMMAND
from tensor_ops.config import tuning_table
from tensor_ops.config.tuning_table import Entry, Table, TableError
from tensor_ops.errors import TensorOpsError
from tensor_ops.files.output import in_the_way
from tensor_ops.op.arguments import DTYPES

if TYPE_CHECKING:
    from tensor_ops.benchmark import Case

__all__ = ["add", "run"]

UNDECIDED = "undecided"
EXAMPLES = """\
examples:
  tensor-ops tune
  tensor-ops tune --show
  tensor-ops tune --ops rms_norm --dtype float16 --shape 1x8192,512x8192
  tensor-ops configure_backend --backend=fastest

The table is kept in the user's cache and holds for this machine, its drivers and the installed
versions. What was measured before of other ops, dtypes and shapes stays in it. A backend whose
result is out of its bound is never chosen. Where the intervals of two medians overlap, or other
processes took the processors, it is undecided which is faster: the order of 'auto' decides then.

Exits with 1 if nothing could be measured or there is no table to show, with 130 after Ctrl-C, which
leaves the table as it was."""


def add(commands: "Commands[ArgumentParser]") -> None:
    """Add this command's parser."""
    parser = add_command(
        commands,
        "tune",
        run,
        help="measure which backend is the fastest here, for --backend=fastest",
        description="Time every op on every available backend, for each dtype and size, and keep "
        "the times. Where the preferred backend is 'fastest', they choose the backend of a call.",
        epilog=EXAMPLES,
    )
    cases.add(parser, shapes="1x128 1x4096 16x4096 128x4096", dtypes="all")
    parser.add_argument(
        "--seconds", type=values.seconds, help="for each op, dtype and shape; default: 0.05"
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--show", action="store_true", help="print the table that is there")
    instead.add_argument("--clear", action="store_true", help="remove the table")


def run(arguments: Namespace) -> int:
    """Measure and keep, or show, or remove."""
    choices = ("ops", "shape", "dtype", "backends", "seconds")
    if arguments.show or arguments.clear:
        if any(getattr(arguments, name) for name in choices):
            arguments.parser.error("--show and --clear are about the whole table: give them alone")
        return _show(_path()) if arguments.show else _clear(_path())
    return _tune(_path(), arguments)


def _path() -> Path:
    path = tuning_table.default_path()
    if path is None:
        raise TensorOpsError(
            "no place for the table: the user has no home folder; set XDG_CACHE_HOME to a folder"
        )
    return path


def _show(path: Path) -> int:
    table = tuning_table.read(path)
    if table is None:
        print(f"There is no table at {path}; '{COMMAND} tune' makes one.")
        return 1
    print(_text(table.entries))
    print()
    for key, value in [*table.machine.items(), ("file", path)]:
        print(f"{key:12}  {value}")
    for name, facts in table.backends.items():
        print(f"{name:12}  {', '.join(f'{key} {value}' for key, value in facts.items() if value)}")
    reason = tuning_table.misfit(table, table.backends)
    if reason is not None:
        raise TableError(f"this table is not used, it does not fit: {reason}")
    return 0


def _clear(path: Path) -> int:
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        print(f"There is no table at {path}")
    except OSError as error:
        raise TensorOpsError(
            f"{path} cannot be removed: {in_the_way(path) or error.strerror or error}"
        ) from error
    else:
        print(f"Removed {path}")
    return 0


def _tune(path: Path, arguments: Namespace) -> int:
    from tensor_ops import benchmark, tuning

    _check_place(path)
    # A backend computes on one device, whatever kind of device it was named with.
    names = list(dict.fromkeys(split(name)[0] for name in cases.available(arguments.backends)))
    wanted = benchmark.cases(
        arguments.ops, arguments.shape or tuning.SHAPES, arguments.dtype or DTYPES
    )
    try:
        measured = _measured(wanted, names, arguments.seconds or tuning.SECONDS)
    except KeyboardInterrupt:
        print("stopped; the table is as it was", file=sys.stderr)
        return 130
    print(_text(measured))
    entries = [entry for entry in measured if entry.seconds]
    if not entries:
        raise TensorOpsError("no backend could run any of this; the table is as it was")
    table = _with_older(tuning.table_of(names, entries), path)
    tuning_table.write(path, table)
    saved = f"Saved {len(entries)} measurements in {path}, which has {len(table.entries)} now."
    print("", *_notes(measured), saved, sep="\n")
    print(f"To go by them: {COMMAND} configure_backend --backend=fastest")
    return 0


def _check_place(path: Path) -> None:
    """Fail now, and not after the measuring, if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            raise PermissionError("no permission to write there")
    except OSError as error:
        reason = in_the_way(path) or error.strerror or error
        raise TensorOpsError(
            f"{path} cannot be written: {reason}; nothing was measured. To keep the table "
            "elsewhere, set XDG_CACHE_HOME"
        ) from error


def _measured(wanted: "list[Case]", names: list[str], seconds: float) -> list[Entry]:
    from tensor_ops import tuning
    from tensor_ops.progress import ProgressBar

    entries = []
    with ProgressBar(sys.stderr) as bar:
        for done, case in enumerate(wanted):
            bar.show(done, len(wanted), f"{done}/{len(wanted)}  {case}")
            entries.append(tuning.measure(case, names, seconds))
    return entries


def _notes(measured: list[Entry]) -> list[str]:
    """Return what to say of measurements that decide nothing."""
    disturbed = sum(entry.is_disturbed for entry in measured)
    undecided = sum(bool(entry.ranking.undecided) for entry in measured)
    notes = []
    if disturbed:
        notes.append(
            f"Other processes took the processors during {disturbed} of {len(measured)} "
            "measurements: run this again when the machine is quiet."
        )
    if undecided:
        notes.append(
            f"{undecided} of {len(measured)} measurements leave undecided which of two backends is "
            "faster: the order of 'auto' decides there."
        )
    return notes


def _with_older(table: Table, path: Path) -> Table:
    """Return a table with what the file has besides, if that still holds."""
    try:
        older = tuning_table.read(path)
    except TableError as error:
        print(f"{COMMAND}: note: {error}; it is replaced", file=sys.stderr)
        return table
    if older is None:
        return table
    if reason := tuning_table.misfit(older, older.backends):
        print(f"{COMMAND}: note: {path} did not fit: {reason}; it is replaced", file=sys.stderr)
        return table
    return Table(table.machine, {**older.backends, **table.backends}, older.updated(table.entries))


def _text(entries: Iterable[Entry]) -> str:
    """Return measurements as text, one line each."""
    # As wide in every table, whether anything is undecided or not.
    rows = [("op", "shape", "dtype", f"{'fastest':{len(UNDECIDED)}}", "time of a call")]
    rows += [_row(entry) for entry in entries]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join([*(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    )


def _row(entry: Entry) -> tuple[str, str, str, str, str]:
    from tensor_ops.timing import format_time

    ranking = entry.ranking
    pairs = ranking.undecided
    notes = [f"{name} {format_time(seconds)}" for name, seconds in ranking.seconds.items()]
    notes += [f"{name} LEFT OUT: {' '.join(why.split())}" for name, why in entry.wrong.items()]
    if entry.is_disturbed:
        notes.append("disturbed by other processes")
    elif pairs:
        notes.append(f"undecided: {', '.join(map(' and '.join, pairs))}")
    fastest = next(iter(ranking.seconds), "-")
    if any(fastest in pair for pair in pairs):
        fastest = UNDECIDED
    shape = "x".join(map(str, entry.shape))
    return entry.op, shape, entry.dtype, fastest, ", ".join(notes) or "-"

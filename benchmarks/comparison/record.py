"""A record as JSON: the machine, the versions, the errors, and one line for each cell."""

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import records
from comparison.cases import Case
from comparison.process import PeerProcess
from records import rounded, without_paths

__all__ = ["FORMAT", "Elsewhere", "Record", "read"]

FORMAT = 1


class Record:
    """A measurement in progress; `write` may be called at any time.

    Attributes
    ----------
    content : dict
        All of it, as `read` returns it.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        origin = records.origin(FORMAT)
        self.content: dict[str, Any] = origin | {
            "machine": origin["machine"] | {"caches": _caches(), "huge_pages": _huge_pages()},
            "settings": settings,
            "versions": {},
            "peers": {},
            "complete": False,
            "seconds": None,
            "busy_elsewhere": None,
            "unsupported": {},
            "errors": {},
            "cells": [],
        }

    def add_peer(self, worker: PeerProcess) -> bool:
        """Note a peer; return whether it is there."""
        known = {"label": worker.label}
        if worker.absent is not None:
            known["absent"] = without_paths(worker.absent)
        self.content["peers"][worker.name] = known
        self.content["versions"] |= worker.versions
        return worker.absent is None

    def add_unsupported(self, case: Case, peer: str, reason: str) -> None:
        """Note what a peer cannot do; the reason of the last shape stands for all."""
        reasons = self.content["unsupported"].setdefault(_kind(case), {})
        reasons[peer] = without_paths(reason)

    def has_errors(self, case: Case, peer: str) -> bool:
        """Return whether the errors of a peer are known for this op, dtype and mode."""
        known = self.content["errors"].get(_kind(case), {})
        return any(key.partition(" ")[0] == peer for key in known)

    def add_error(self, case: Case, entry: str, error: dict[str, Any]) -> None:
        """Note the largest error of an entry."""
        numbers = {key: rounded(error[key]) for key in ("error", "of_row")}
        problem = {"problem": error["problem"]} if error["problem"] else {}
        known = self.content["errors"].setdefault(_kind(case), {})
        known[entry] = numbers | {"within": error["within"]} | problem

    def add_cell(self, case: Case, entries: dict[str, dict[str, Any]]) -> None:
        """Note the times of one case, in the place of earlier ones."""
        kept = {key: _short(entry) for key, entry in entries.items()}
        cell = case.as_dict() | {"entries": kept}
        cells = self.content["cells"]
        for number, known in enumerate(cells):
            if Case.from_dict(known) == case:
                cells[number] = cell
                return
        cells.append(cell)

    @classmethod
    def again(cls, content: dict[str, Any], wanted: Sequence[Case]) -> "Record":
        """Return a record whose cells of these cases are going to be replaced."""
        record = cls(content["settings"])
        now = {name: record.content[name] for name in ("date", "commit")}
        record.content = content | {"again": now | {"cells": len(wanted)}}
        return record

    def write(self, path: Path) -> None:
        """Write everything, in the place of an older file only when it is complete."""
        long = ("cells", "errors", "unsupported")
        records.write(path, records.as_lines(self.content, long, separators=(",", ":")))


def read(path: Path) -> dict[str, Any]:
    """Return what `Record.write` wrote; raise a ValueError if the file is of another format."""
    return records.read(path, FORMAT)


class Elsewhere:
    """How busy other processes kept the processors since this was made."""

    def __init__(self) -> None:
        self._start = time.monotonic(), _busy_seconds(), _own_seconds()

    def cores(self) -> float | None:
        """Return the average number of cores; None where the system does not tell.

        Of child processes, only those that have ended count as our own.
        """
        start, busy, own = self._start
        now = _busy_seconds()
        if now is None or busy is None:
            return None
        seconds = (now - busy) - (_own_seconds() - own)
        return rounded(max(0.0, seconds / max(time.monotonic() - start, 1e-3)))


def _busy_seconds() -> float | None:
    """Return the seconds that all processors together have worked, where Linux tells."""
    try:
        first = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0]
    except OSError:
        return None
    user, nice, system, _, _, irq, softirq, *_ = map(int, first.split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _kind(case: Case) -> str:
    return f"{case.variant} {case.dtype} {case.mode}"


def _short(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry in the few characters that it needs: rounds in microseconds."""
    if "failure" in entry:
        return {"failure": without_paths(entry["failure"])}
    rounds = [rounded(1e6 * seconds) for seconds in entry["seconds"]]
    return {"calls": entry["calls"], "us": rounds}


def _caches() -> dict[str, str]:
    """Return the sizes of one processor's caches by level, where Linux tells them."""
    found = {}
    for place in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (
            (place / name).read_text(encoding="utf-8").strip() for name in ("level", "type", "size")
        )
        found[f"L{level} {kind}"] = size
    return found


def _huge_pages() -> str | None:
    place = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    try:
        chosen = re.search(r"\[(\w+)\]", place.read_text(encoding="utf-8"))
    except OSError:
        return None
    return chosen[1] if chosen else None

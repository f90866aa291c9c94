"""Origin and files of records, which several benchmarks have in common."""

import datetime
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tensor_ops import machine

__all__ = ["origin", "read", "rounded", "without_paths", "write"]

ROOT = Path(__file__).parents[1]
# More digits than these are noise.
DIGITS = 4


def origin(format_: int) -> dict[str, Any]:
    """Return what a record begins with: its format, and when, by what and where it is made."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "format": format_,
        "date": now.isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": machine.facts(),
    }


def write(path: Path, text: str) -> None:
    """Write a record, in the place of an older file only when it is complete."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def read(path: Path, format_: int) -> dict[str, Any]:
    """Return a record.

    Raises
    ------
    ValueError
        If the file is of another format.
    """
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    found = content.get("format") if isinstance(content, dict) else None
    if found != format_:
        raise ValueError(
            f"{path.name} has format {found}, this code reads {format_}; measure again, "
            f"or read it with the commit that wrote it"
        )
    return content


def rounded(number: float | None) -> float | None:
    """Return a measured number in as many digits as a record has."""
    if number is None:
        return None
    rounded = float(f"{number:.{DIGITS}g}")
    return int(rounded) if rounded >= 1000 and rounded.is_integer() else rounded


def without_paths(text: str) -> str:
    """Return a message without the folders of this machine."""
    return re.sub(r"(?:/[\w.+-]+){2,}/", ".../", text)


def _commit() -> dict[str, Any]:
    """Return the commit of this checkout and whether files differ from it."""
    head = _git("rev-parse", "HEAD")
    return {"id": head or None, "dirty": bool(_git("status", "--porcelain")) if head else None}


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip()

"""Origin and files of records, which several benchmarks have in common."""

import datetime
import json
import os
import re
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tensor_ops import machine

__all__ = ["as_lines", "origin", "read", "rounded", "without_paths", "write", "write_json"]

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


def write_json(path: Path | None, content: object) -> None:
    """Write a short record as indented JSON, if there is a file to write it to."""
    if path is not None:
        write(path, json.dumps(content, indent=1) + "\n")


def as_lines(content: dict[str, Any], long: Collection[str], **options: Any) -> str:
    """Return JSON with a line for each key, and for each entry of what is long.

    Parameters
    ----------
    content : dict
    long : collection of str
        The keys of lists and dicts whose entries have lines of their own.
    **options
        Of `json.dumps`, for these entries.
    """
    lines = []
    for key, value in content.items():
        if key not in long:
            inner = json.dumps(value)
        elif isinstance(value, list):
            inner = "[\n" + ",\n".join(json.dumps(each, **options) for each in value) + "\n]"
        else:
            entries = (f"{json.dumps(k)}: {json.dumps(v, **options)}" for k, v in value.items())
            inner = "{\n" + ",\n".join(entries) + "\n}"
        lines.append(f"{json.dumps(key)}: {inner}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


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

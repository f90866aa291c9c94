"""The figures of ``opencl_limits.py`` as tables in Markdown, for the page about OpenCL."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from comparison.tables import disturbance, table

__all__ = ["CALL_GOAL", "CPP_GOAL", "LEVELS", "NUMPY_GOAL", "PAGE", "blocks", "read"]

PAGE = Path(__file__).parents[2] / "docs" / "backends" / "opencl.md"
#: What PoCL's compiler uses at most on this machine, and what `tensor_ops_cpp` does.
LEVELS = ("x86-64-v3", "x86-64-v4")

CALL_GOAL = 60.0
NUMPY_GOAL = 1.0
CPP_GOAL = 0.7

Row = dict[str, Any]


def read(path: Path) -> dict[str, Any]:
    """Return a record."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page by name."""
    return {
        "setting": _setting(record),
        "goals": _goals(record),
        "calls": _calls(record),
        "beside numpy": _beside_numpy(record["beside_numpy"]),
        "beside cpp": _beside_cpp(record["beside_cpp"]),
    }


def _setting(record: dict[str, Any]) -> str:
    facts = record["setting"]
    rows = [
        ("processor", f"{facts['cpu']}, {facts['cores']} cores"),
        ("device", record["device"]),
        ("platform", facts["platform"]),
        ("compiles for", facts["compiles_for"]),
        ("date", facts["date"]),
        ("other processes", disturbance(record.get("busy_elsewhere"))),
    ]
    return table(("what", "which"), rows)


def _goals(record: dict[str, Any]) -> str:
    calls = [(name, time, time <= CALL_GOAL) for name, time in record["one_row_us"].items()]
    slowest = max(calls, key=lambda call: call[1])
    rows = [
        (
            f"one row in at most {CALL_GOAL:.0f} µs",
            f"{sum(met for *_, met in calls)} of {len(calls)}",
            f"{slowest[0]}: {slowest[1]:.0f} µs",
        ),
        _shares("as fast as NumPy, (128, 4096)", record["beside_numpy"], NUMPY_GOAL),
    ]
    rows += [
        _shares(f"{CPP_GOAL} of C++ at {level}, large", record["beside_cpp"][level], CPP_GOAL)
        for level in LEVELS
    ]
    return table(("goal", "met", "furthest from it"), rows)


def _shares(goal: str, rows: Sequence[Row], wanted: float) -> tuple[str, str, str]:
    worst = min(rows, key=lambda row: row["ratio"])
    met = sum(row["ratio"] >= wanted for row in rows)
    name = f"{worst['op']} {worst['dtype']} {_shape(worst['shape'])}"
    return goal, f"{met} of {len(rows)}", f"{name}: {worst['ratio']:.2f}"


def _calls(record: dict[str, Any]) -> str:
    launches = {
        "nothing: an empty kernel, awaited": record["launch_us"]["kernel"],
        "nothing: the same, its result mapped": record["launch_us"]["kernel and mapping"],
    }
    empty = record["launch_us"]["kernel and mapping"]
    rows = [(name, f"{time:.0f} µs", "") for name, time in launches.items()]
    rows += [
        (name, f"{time:.0f} µs", f"{time - empty:.0f} µs")
        for name, time in record["one_row_us"].items()
    ]
    return table(("one row does", "takes", "more than nothing"), rows)


def _beside_numpy(found: Sequence[Row]) -> str:
    rows = [
        (
            row["op"],
            f"{row['opencl_us']:.0f} µs",
            f"{row['numpy_us']:.0f} µs",
            f"{row['ratio']:.1f}",
        )
        for row in found
    ]
    return table(("op", "OpenCL", "NumPy", "times as fast"), rows)


def _beside_cpp(levels: dict[str, list[Row]]) -> str:
    shares = {
        (row["op"], row["dtype"], tuple(row["shape"]), level): row["ratio"]
        for level, rows in levels.items()
        for row in rows
    }
    columns = _in_order((dtype, shape) for _, dtype, shape, _ in shares)
    rows = [
        (
            op,
            *(
                " / ".join(f"{shares[op, *each, level]:.2f}" for level in LEVELS)
                for each in columns
            ),
        )
        for op in _in_order(op for op, *_ in shares)
    ]
    return table(("op", *(f"{dtype} {_shape(shape)}" for dtype, shape in columns)), rows)


def _in_order(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _shape(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))})"

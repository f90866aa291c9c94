"""Figures of ``opencl_limits.py`` and ``opencl_calls.py`` as tables, for the page about OpenCL."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from comparison.tables import disturbance
from harness.tables import shape_text, table

__all__ = [
    "CALLS",
    "CALL_GOAL",
    "CPP_GOAL",
    "LEVELS",
    "LIMITS",
    "NUMPY_GOAL",
    "PAGE",
    "blocks",
    "read",
]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "backends" / "opencl.md"
LIMITS = ROOT / "benchmarks" / "results" / "opencl_limits.json"
CALLS = ROOT / "benchmarks" / "results" / "opencl_calls.json"
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


def blocks(record: dict[str, Any], calls: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page by name, from the record of limits and that of calls."""
    return {
        "drivers": _drivers(calls),
        "costs of drivers": _costs_of_drivers(calls["devices"]),
        "calls on drivers": _calls_on_drivers(calls["devices"]),
        "setting": _setting(record),
        "goals": _goals(record),
        "calls": _calls(record),
        "beside numpy": _beside_numpy(record["beside_numpy"]),
        "beside cpp": _beside_cpp(record["beside_cpp"]),
    }


def _drivers(record: dict[str, Any]) -> str:
    rows = [("processor", f"{record['cpu']}, {record['cores']} cores")]
    rows += [(each["driver"], each["version"]) for each in record["devices"]]
    rows += [
        ("date", record["date"]),
        ("other processes", disturbance(record.get("busy_elsewhere"))),
    ]
    return table(("what", "which"), rows)


def _costs_of_drivers(devices: Sequence[Row]) -> str:
    buffers = {
        "a buffer declared read-only, memory begins at a page": "read-only, at a page",
        "a buffer declared read-only, memory begins within a page": "read-only, within a page",
        "a buffer whose access is unsaid, memory begins within a page": "unsaid, within a page",
    }
    rows = [
        ("an empty kernel, awaited", *_micro(devices, "launch_us", "kernel")),
        ("the same, its result mapped", *_micro(devices, "launch_us", "kernel and mapping")),
    ]
    rows += [(text, *_micro(devices, "buffer_us", name)) for text, name in buffers.items()]
    return table(("what", *(each["driver"] for each in devices)), rows)


def _micro(devices: Sequence[Row], kind: str, name: str) -> list[str]:
    return [f"{device[kind][name]:.0f} µs" for device in devices]


def _calls_on_drivers(devices: Sequence[Row]) -> str:
    few = [{row["op"]: row for row in device["few_rows"]} for device in devices]
    rows = [
        (
            op,
            " / ".join(_micro(devices, "one_row_us", op)),
            " / ".join(f"{each[op]['opencl_us']:.0f} µs" for each in few),
            " / ".join(f"{each[op]['ratio']:.1f}" for each in few),
        )
        for op in devices[0]["one_row_us"]
    ]
    names = " / ".join(device["driver"] for device in devices)
    heads = (f"(1, 4096), {names}", "(128, 4096), likewise", "times as fast as NumPy, likewise")
    return table(("op", *heads), rows)


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
    name = f"{worst['op']} {worst['dtype']} {shape_text(worst['shape'])}"
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
    return table(("op", *(f"{dtype} {shape_text(shape)}" for dtype, shape in columns)), rows)


def _in_order(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))

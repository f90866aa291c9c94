"""The tables of the page about errors, from the record that `errors` writes."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import records
from pages import ROOT
from tensor_ops.op.accuracy import Bound
from tensor_ops.op.arguments import DTYPES
from tensor_ops.variants import VARIANTS, Variant

__all__ = ["BACKENDS", "FORMAT", "HALVES", "PAGE", "blocks", "read"]

FORMAT = 2
PAGE = ROOT / "docs" / "accuracy.md"
BACKENDS = ("python", "cpp", "opencl", "cuda")
HALVES = ("float16", "bfloat16")
NOT_MEASURED = "not measured"


def read(path: Path) -> dict[str, Any]:
    """Return a record; raise a ValueError if the file is of another format."""
    return records.read(path, FORMAT)


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of docs/accuracy.md by name."""
    tables = {dtype: _table(record, dtype) for dtype in DTYPES}
    return {"setting": _setting(record)} | tables | {"mixed": _mixed_table(record)}


def _setting(record: dict[str, Any]) -> str:
    facts = record["machine"]
    rows = [
        ("processor", f"{facts['cpu']}; {', '.join(facts['simd'])}"),
        ("system", f"{facts['os']}, Python {facts['python']}, NumPy {facts['numpy']}"),
    ]
    for name, backend in record["backends"].items():
        rows.append((f"`{name}`", f"{backend['version']} on {backend['device_name']}"))
    rows.append(("date", record["date"]))
    return _markdown(("what", "which"), rows, ("---", "---"))


def _table(record: dict[str, Any], dtype: str) -> str:
    cells = {
        (cell["variant"], cell["backend"]): cell
        for cell in record["cells"]
        if cell["dtype"] == dtype and not cell["in_float32"]
    }
    rows = []
    for variant in _measured(record):
        found = [cells.get((variant.name, backend)) for backend in BACKENDS]
        errors = [
            _shown(cell, variant.op.bound(dtype, cell["backend"])) if cell else NOT_MEASURED
            for cell in found
        ]
        rows.append((f"`{variant.name}`", *errors, str(variant.op.bounds[dtype])))
    head = ("op", *(f"`{name}`" for name in BACKENDS), "allowed")
    return _markdown(head, rows, ("---", *["---:"] * len(BACKENDS), "---"))


def _mixed_table(record: dict[str, Any]) -> str:
    cells = {
        (cell["variant"], cell["dtype"], tuple(cell["in_float32"]), cell["backend"]): cell
        for cell in record["cells"]
    }
    rows = []
    for variant in _measured(record):
        for wide in variant.op.mixtures:
            for dtype in HALVES:
                found = [cells.get((variant.name, dtype, wide, backend)) for backend in BACKENDS]
                errors = [
                    _shown(cell, variant.op.bound(dtype, cell["backend"])) if cell else NOT_MEASURED
                    for cell in found
                ]
                names = ", ".join(f"`{name}`" for name in wide)
                allowed = str(variant.op.bounds[dtype])
                rows.append((f"`{variant.name}`", dtype, names, *errors, allowed))
    backends = (f"`{name}`" for name in BACKENDS)
    head = ("op", "`x`", "in float32", *backends, "allowed")
    return _markdown(head, rows, ("---", "---", "---", *["---:"] * len(BACKENDS), "---"))


def _measured(record: dict[str, Any]) -> list[Variant]:
    """Return the variants that a record has; an op that is new is in the next one."""
    names = {cell["variant"] for cell in record["cells"]}
    return [variant for variant in VARIANTS.values() if variant.name in names]


def _shown(cell: dict[str, Any], bound: Bound) -> str:
    number = f"{cell['error']:g}"
    return f"**{number}**" if cell["error"] > bound.limit else number


def _markdown(
    head: tuple[str, ...], rows: Iterable[tuple[str, ...]], alignment: tuple[str, ...]
) -> str:
    lines = [head, alignment, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

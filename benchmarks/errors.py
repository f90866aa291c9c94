"""The largest error of every op, on every backend that is available, and the page that shows it.

Each result is compared with the op's NumPy body in float64, on the op's own samples, on drawn
arrays, and, for ops of one array, on every value of the half types and a sweep over float32. Seeds
come from the names of the cases.

    python benchmarks/errors.py --json benchmarks/results/errors.json
    python benchmarks/errors.py --report benchmarks/results/errors.json
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import records
import tensor_ops
from comparison.report import BLOCK, FIGURES, ROOT
from tensor_ops.accuracy import Bound, Measured, measure
from tensor_ops.arguments import DTYPES
from tensor_ops.samples import Draw, arguments, mixed
from tensor_ops.variants import VARIANTS, Variant

FORMAT = 2
PAGE = ROOT / "docs" / "accuracy.md"
SUMMARY = FIGURES / "summary-accuracy.svg"
BACKENDS = ("python", "cpp", "opencl", "cuda")
SHAPES = ((1, 64), (7, 130), (3, 2, 2, 10), (32, 4096), (2, 40000))
HALVES = ("float16", "bfloat16")
NOT_MEASURED = "not measured"

Values = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--json", type=Path, help="measure, and write what was found to this file")
    what.add_argument("--report", type=Path, help="bring docs/accuracy.md up to date with a file")
    given = parser.parse_args()
    if given.json:
        given.json.write_text(as_text(measure_all()), encoding="utf-8")
    else:
        import summary_figures

        page = PAGE.read_text(encoding="utf-8")
        record = read(given.report)
        PAGE.write_text(fill(page, record), encoding="utf-8")
        SUMMARY.write_text(summary_figures.accuracy(record), encoding="utf-8")


def measure_all() -> dict[str, Any]:
    """Return the record of the available backends, as `read` does."""
    backends = [name for name in BACKENDS if tensor_ops.is_backend_available(name)]
    infos = {name: tensor_ops.get_backend_info(name) for name in backends}
    cells = []
    for variant in VARIANTS.values():
        for dtype in DTYPES:
            for wide in _mixtures(variant, dtype):
                cells += _cells(variant, dtype, backends, wide)
            print(f"{variant.name} {dtype}", flush=True)
    return records.origin(FORMAT) | {
        "backends": {
            name: {key: info[key] for key in ("version", "device_name")}
            for name, info in infos.items()
        },
        "cells": cells,
    }


def read(path: Path) -> dict[str, Any]:
    """Return a record; raise a ValueError if the file is of another format."""
    return records.read(path, FORMAT)


def as_text(record: dict[str, Any]) -> str:
    """Return a record as JSON, with a line for each cell."""
    head = {key: value for key, value in record.items() if key != "cells"}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    cells = ",\n".join(json.dumps(cell) for cell in record["cells"])
    return "{\n" + ",\n".join(lines) + f',\n"cells": [\n{cells}\n]\n}}\n'


def fill(page: str, record: dict[str, Any]) -> str:
    """Return the page with every measured block made anew."""
    made = blocks(record)
    return BLOCK.sub(lambda match: f"{match[1]}{made[match[2]]}\n{match[3]}", page)


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of docs/accuracy.md by name."""
    tables = {dtype: _table(record, dtype) for dtype in DTYPES}
    return {"setting": _setting(record)} | tables | {"mixed": _mixed_table(record)}


def _mixtures(variant: Variant, dtype: str) -> list[tuple[str, ...]]:
    """Return the sets of arguments to make float32, the first of them empty."""
    return [(), *(variant.op.mixtures if dtype in HALVES else [])]


def _cells(
    variant: Variant, dtype: str, backends: Iterable[str], wide: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Return the largest error of each backend, in the unit of its bound.

    Where the bound grows with the length of a row, the error is divided by that growth. The
    arguments in `wide` are float32.
    """
    cases = list(_cases(variant, dtype, wide))
    references = [_in_float64(variant, values) for _, values in cases]
    found = []
    for backend in backends:
        bound = variant.op.bound(dtype, backend)
        errors = [
            (_error(variant, backend, values, reference, bound), label)
            for (label, values), reference in zip(cases, references, strict=True)
        ]
        error, label = max(errors)
        found.append(
            {
                "variant": variant.name,
                "dtype": dtype,
                "in_float32": list(wide),
                "backend": backend,
                "error": float(f"{error:.3g}"),
                "on": label,
            }
        )
    return found


def _cases(
    variant: Variant, dtype: str, wide: tuple[str, ...] = ()
) -> Iterator[tuple[str, Values]]:
    op = variant.op
    for sample in op.samples:
        if dtype in sample.dtypes:
            draw = Draw(dtype, f"{op.name}/{sample.name}")
            values, in_float32 = (
                op.bind(sample.make(each), sample.kwargs) for each in (draw, draw.in_float32())
            )
            values = mixed(values, in_float32, wide)
            values.pop("out")
            yield sample.name, values | dict(variant.options)
    for shape in SHAPES:
        draw = Draw(dtype, f"{op.name}/errors {shape}")
        yield f"drawn, {shape}", arguments(op, shape, draw, wide) | dict(variant.options)
    names = [name for name, kind in op.kinds.items() if kind.is_array]
    if all(op.kinds[name].role == "elements" for name in names):
        draw = Draw(dtype, f"{op.name}/errors of every magnitude")
        yield "every magnitude", {n: draw.spread(20000) for n in names} | dict(variant.options)
        if len(names) == 1 and (sweep := _sweep(dtype)) is not None:
            yield (
                "all values" if dtype != "float32" else "a sweep",
                {names[0]: sweep} | dict(variant.options),
            )


def _sweep(dtype: str) -> Any:
    """Return all values of a half type, or those of float32 at even distances of their bits."""
    if dtype == "float64":
        return None
    if dtype == "float32":
        bits = np.arange(0, 1 << 32, 4099, dtype=np.uint64)
        return bits.astype(np.uint32).view(np.float32)
    return np.arange(1 << 16, dtype=np.uint16).view(DTYPES[dtype])


def _in_float64(variant: Variant, values: Values) -> tuple[Any, ...]:
    with np.errstate(all="ignore"):
        wide = {
            name: value.astype(np.float64) if isinstance(value, np.ndarray) else value
            for name, value in values.items()
        }
    return _as_tuple(variant.op.numpy(**wide))


def _error(
    variant: Variant, backend: str, values: Values, reference: tuple[Any, ...], bound: Bound
) -> float:
    results = _as_tuple(variant.op.public(**values, backend=backend))
    dtype = values[variant.op.first].dtype
    # A sum in float32 beside half rows has another bound, to which the conformance suite holds it.
    errors = [
        measure(got, wanted, bound)
        for got, wanted in zip(results, reference, strict=True)
        if got.dtype == dtype
    ]
    return max(_at_length_one(each, bound) for each in errors)


def _at_length_one(measured: Measured, bound: Bound) -> float:
    return measured.error * bound.limit / measured.limit


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


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


if __name__ == "__main__":
    main()

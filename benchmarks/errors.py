"""The largest error of every op, on every backend that is available, and the page that shows it.

Each result is compared with the op's NumPy body in float64, on the op's own samples, on drawn
arrays, and, for ops of one array, on every value of the half types and a sweep over float32. Seeds
come from the names of the cases.

    python benchmarks/errors.py --json benchmarks/results/errors.json
    python benchmarks/errors.py --report benchmarks/results/errors.json
"""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import records
import summary_figures
import tensor_ops
from error_tables import BACKENDS, FORMAT, HALVES, PAGE, blocks, read
from pages import FIGURES, update
from tensor_ops.op.accuracy import Bound, Measured, measure
from tensor_ops.op.arguments import DTYPES
from tensor_ops.op.samples import Draw, arguments
from tensor_ops.variants import VARIANTS, Variant

SUMMARY = FIGURES / "summary-accuracy.svg"
SHAPES = ((1, 64), (7, 130), (3, 2, 2, 10), (32, 4096), (2, 40000))

Values = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--json", type=Path, help="measure, and write what was found to this file")
    what.add_argument("--report", type=Path, help="bring docs/accuracy.md up to date with a file")
    given = parser.parse_args()
    if given.json:
        records.write(given.json, records.as_lines(measure_all(), ["cells"]))
    else:
        record = read(given.report)
        update(PAGE, blocks(record))
        SUMMARY.write_text(summary_figures.accuracy(record), encoding="utf-8")


def measure_all() -> dict[str, Any]:
    """Return the record of the available backends, as `error_tables.read` does."""
    backends = [name for name in BACKENDS if tensor_ops.is_backend_available(name)]
    infos = {name: tensor_ops.get_backend_info(name) for name in backends}
    cells = []
    for variant in VARIANTS.values():
        for dtype in DTYPES:
            for wide in _mixtures(variant, dtype):
                cells += largest_errors(variant, dtype, backends, wide)
            print(f"{variant.name} {dtype}", flush=True)
    return records.origin(FORMAT) | {
        "backends": {
            name: {key: info[key] for key in ("version", "device_name")}
            for name, info in infos.items()
        },
        "cells": cells,
    }


def largest_errors(
    variant: Variant, dtype: str, backends: Iterable[str], wide: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Return the largest error of each backend, in the unit of its bound.

    Where the bound grows with the length of a row, the error is divided by that growth. The
    arguments in `wide` are float32.
    """
    cases = list(_cases(variant, dtype, wide))
    expected = [_expected(variant, values) for _, values in cases]
    found = []
    for backend in backends:
        if variant.op.derivative_of and not _has(backend, variant):
            continue
        bound = variant.op.bound(dtype, backend)
        errors = [
            (_error(variant, backend, values, each, bound), label)
            for (label, values), each in zip(cases, expected, strict=True)
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


def _has(backend: str, variant: Variant) -> bool:
    return variant.op.name in tensor_ops.get_backend_info(backend)["ops"]


def _mixtures(variant: Variant, dtype: str) -> list[tuple[str, ...]]:
    """Return the sets of arguments to make float32, the first of them empty.

    Of those, some result has the half type.
    """
    op = variant.op
    mixed = [wide for wide in op.mixtures if not set(op.results_like) <= set(wide)]
    return [(), *(mixed if dtype in HALVES else [])]


def _cases(
    variant: Variant, dtype: str, wide: tuple[str, ...] = ()
) -> Iterator[tuple[str, Values]]:
    op = variant.op
    for sample in op.samples:
        if dtype in sample.dtypes:
            yield sample.name, sample.values(op, dtype, wide) | dict(variant.options)
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


def _expected(variant: Variant, values: Values) -> list[tuple[Any, Any]]:
    """Return for each result its reference in float64, and what is to be known of its terms."""
    with np.errstate(all="ignore"):
        wide = {
            name: value.astype(np.float64) if isinstance(value, np.ndarray) else value
            for name, value in values.items()
        }
    references = _as_tuple(variant.op.numpy(**wide))
    return list(zip(references, variant.op.terms_of(wide), strict=True))


def _error(
    variant: Variant, backend: str, values: Values, expected: list[tuple[Any, Any]], bound: Bound
) -> float:
    results = _as_tuple(variant.op.public(**values, backend=backend))
    dtype = values[variant.op.first].dtype
    # A sum in float32 beside half rows has another bound, to which the conformance suite holds it.
    errors = [
        measure(got, wanted, bound, terms)
        for got, (wanted, terms) in zip(results, expected, strict=True)
        if got.dtype == dtype
    ]
    return max(_at_length_one(each, bound) for each in errors)


def _at_length_one(measured: Measured, bound: Bound) -> float:
    return measured.error * bound.limit / measured.limit


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


if __name__ == "__main__":
    main()

"""No figure on the page about errors without its record."""

import re
from pathlib import Path

import pytest

import error_tables
import errors
import pages
from tensor_ops.op.arguments import DTYPES
from tensor_ops.variants import VARIANTS

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "errors.json"
# An op that is new is not in the record before `nox -s errors` has measured it.
MEASURED = list(dict.fromkeys(cell["variant"] for cell in error_tables.read(RECORD)["cells"]))


def measured_backends(op):
    """Return the backends that must be in the record; only some of them have derivatives."""
    return {"python", "cpp"} if op.derivative_of else {"python", "cpp", "opencl"}


@pytest.fixture(scope="module")
def record():
    return error_tables.read(RECORD)


def test_page_is_what_the_record_gives(record):
    page = error_tables.PAGE.read_text(encoding="utf-8")
    assert page == pages.fill(page, error_tables.blocks(record)), (
        "run: nox -s errors -- --report " + str(RECORD)
    )


def test_every_block_of_the_record_is_shown(record):
    page = error_tables.PAGE.read_text(encoding="utf-8")
    shown = [match[2] for match in pages.BLOCK.finditer(page)]
    assert sorted(shown) == sorted(error_tables.blocks(record))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", MEASURED)
def test_each_backend_was_measured_and_keeps_the_bound(record, variant, dtype):
    found = {
        cell["backend"]: cell["error"]
        for cell in record["cells"]
        if (cell["variant"], cell["dtype"], cell["in_float32"]) == (variant, dtype, [])
    }
    op = VARIANTS[variant].op
    assert measured_backends(op) <= found.keys()
    for backend, error in found.items():
        assert error <= op.bound(dtype, backend).limit, backend


@pytest.mark.parametrize("variant", MEASURED)
def test_each_mixture_of_dtypes_was_measured_and_keeps_the_bound(record, variant):
    op = VARIANTS[variant].op
    cells = [cell for cell in record["cells"] if cell["variant"] == variant and cell["in_float32"]]
    measured = {(c["backend"], c["dtype"], tuple(c["in_float32"])) for c in cells}
    assert measured >= {
        (backend, dtype, wide)
        for backend in measured_backends(op)
        for dtype in ("float16", "bfloat16")
        for wide in op.mixtures
        if not set(op.results_like) <= set(wide)  # all results are float32 then
    }
    for cell in cells:
        assert cell["error"] <= op.bound(cell["dtype"], cell["backend"]).limit, cell


def test_an_error_is_measured_again(record):
    """The same case gives the same error: seeds come from the names of the cases."""
    (cell,) = errors.largest_errors(VARIANTS["softmax"], "float32", ["python"])
    assert cell["backend"] == "python"
    assert 0 < cell["error"] < 1e-6
    assert cell == errors.largest_errors(VARIANTS["softmax"], "float32", ["python"])[0]


def test_what_is_above_the_bound_is_bold(record):
    (cell, *_) = record["cells"]
    changed = record | {"cells": [cell | {"error": 1.0}]}
    assert "| **1** |" in error_tables.blocks(changed)[cell["dtype"]]


def test_the_record_tells_no_machine_apart():
    """Names of hosts and users' folders are nobody's business."""
    text = RECORD.read_text(encoding="utf-8")
    assert not re.search(r"/(?:home|root|tmp|Users)\b", text)

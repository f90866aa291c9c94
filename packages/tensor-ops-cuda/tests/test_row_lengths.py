"""Rows of every kind of length, on GPUs with clusters of blocks and without."""

from pathlib import Path

import pytest

import tensor_ops_cuda
from tensor_ops.ops import OPS

EMULATED = "emulated on the host"
# The ops whose results depend on a whole row; those with half rows see pairs of elements only.
BY_ROWS = [
    op
    for op in tensor_ops_cuda.ops
    if {"rows", "half_rows"} & {kind.role for kind in OPS[op].kinds.values()} == {"rows"}
]


@pytest.fixture
def check(request, device, python):
    """A function that checks an op on rows of short or long lengths."""
    script = str(Path(__file__).with_name("row_lengths.py"))
    # An emulation is slow and checks a quarter of the pairs, which have each length once.
    slow = device.name == EMULATED and not request.config.getoption("--nightly")
    every = "4" if slow else "1"

    def run(op, lengths, capability):
        printed = python(
            f"import sys, runpy; sys.argv = ['row_lengths', {op!r}, {lengths!r}, {every!r}]\n"
            f"runpy.run_path({script!r}, run_name='__main__')",
            TENSOR_OPS_EMULATED_CAPABILITY=capability,
        )
        assert printed.strip() == op

    return run


@pytest.mark.parametrize("op", tensor_ops_cuda.ops)
def test_rows_are_right_alone_and_in_place(op, device, check):
    check(op, "short", "9.0")


@pytest.mark.unsanitized(reason="long rows may pass their time limit there")
@pytest.mark.parametrize("op", BY_ROWS)
@pytest.mark.parametrize("capability", ["9.0", pytest.param("8.6", marks=pytest.mark.nightly)])
def test_long_rows_are_right_alone_and_in_place(op, capability, device, check):
    if device.name != EMULATED and capability != "9.0":
        pytest.skip("a GPU has the capability that it has")
    check(op, "long", capability)

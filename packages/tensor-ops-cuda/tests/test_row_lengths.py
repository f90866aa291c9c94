"""Rows of every kind of length, on GPUs with clusters of blocks and without."""

from pathlib import Path

import pytest

import tensor_ops_cuda

EMULATED = "emulated on the host"


@pytest.mark.parametrize("op", tensor_ops_cuda.ops)
@pytest.mark.parametrize("capability", ["9.0", "8.6"])
def test_rows_are_right_alone_and_in_place(op, capability, device, python):
    if device.name != EMULATED and capability != "9.0":
        pytest.skip("a GPU has the capability that it has")
    script = Path(__file__).with_name("row_lengths.py")
    printed = python(
        f"import sys, runpy; sys.argv = ['row_lengths', {op!r}]\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')",
        TENSOR_OPS_EMULATED_CAPABILITY=capability,
    )
    assert printed.strip() == op

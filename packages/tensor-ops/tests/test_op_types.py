"""Types that a type checker sees in an installed tensor_ops."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import tensor_ops

STUB = Path(tensor_ops.__file__).with_suffix(".pyi")


@pytest.mark.skipif(not STUB.exists(), reason="an editable install has no stub")
def test_mypy_knows_the_ops(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(
        dedent(
            """
            import numpy as np
            import tensor_ops
            x = np.ones((2, 4), np.float32)
            with tensor_ops.use_backend("python"):
                y = tensor_ops.rms_norm(x, np.ones(4, np.float32), 1e-6, out=x)
            tensor_ops.gelu(x, "none", backend="python")
            tensor_ops.rms_norm(x, x, "eps")
            tensor_ops.gelu(x, "erf")
            tensor_ops.rmsnorm(x)
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line]
    assert lines == ["8", "9", "10"], done.stdout


@pytest.mark.skipif(not STUB.exists(), reason="an editable install has no stub")
def test_stub_names_every_op():
    text = STUB.read_text()
    for op in tensor_ops.list_ops():
        assert f"from tensor_ops.ops.{op} import {op} as {op}" in text

"""The probe of barriers is a program for GPUs: it needs none to be compiled."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "benchmarks/gpu/barrier_probe.cu"
FOLDERS = (ROOT / "packages/tensor-ops-cuda/native", ROOT / "native", ROOT / "native/include")


@pytest.mark.unsanitized(reason="nvcc does not survive the library of AddressSanitizer")
def test_it_compiles_without_a_warning(tmp_path):
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc is here: put it on the PATH, or set CUDACXX")
    options = ["-std=c++17", "-O3", "-arch=sm_90", "--expt-relaxed-constexpr", "-Xptxas=-v"]
    options += ["--Werror=all-warnings", "-Xcompiler=-Wall,-Wextra", "-cubin", "-o", "probe"]
    done = subprocess.run(
        [nvcc, *options, *(f"-I{folder}" for folder in FOLDERS), str(SOURCE)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    # A round for each part, and rings of three slots and four, none of them with spilled registers.
    assert printed.count("Compiling entry function") == 6 + 2
    assert set(re.findall(r"(\d+) bytes spill", printed)) == {"0"}

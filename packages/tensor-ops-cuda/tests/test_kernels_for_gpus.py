"""The kernels that are tested on the emulated device are kernels for GPUs too: none is needed."""

import os
import re
import shutil
import subprocess

import pytest
from emulated_kernels import FOLDERS, PROGRAM

# PTX of the functions of kernels/{grid,waits,async_copy,mma,device}.cuh.
INSTRUCTIONS = {
    "ld.acquire.gpu.global.u32",
    "atom.add.release.gpu.global.u32",
    "cp.async.cg.shared.global.L2::128B",
    "cp.async.commit_group",
    "cp.async.wait_group",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "bar.sync",
    "bar.warp.sync",
    "barrier.sync",
}


@pytest.mark.compiles
@pytest.mark.unsanitized(reason="nvcc does not survive the library of AddressSanitizer")
@pytest.mark.parametrize("architecture", [80, 90, 100])
def test_they_compile_to_the_instructions_that_are_meant(architecture, tmp_path):
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc is here: put it on the PATH, or set CUDACXX")
    options = ["-std=c++17", f"-arch=sm_{architecture}", "--expt-relaxed-constexpr"]
    options += ["--Werror=all-warnings", "-Xcompiler=-Wall,-Wextra", "-Xptxas=-v"]
    folders = [f"-I{folder}" for folder in FOLDERS if folder.name != "emulation"]
    done = subprocess.run(
        [nvcc, *options, *folders, "--keep", "-x", "cu", "-cubin", str(PROGRAM), "-o", "kernels"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"(\d+) bytes spill", done.stdout + done.stderr)) == {"0"}
    (ptx,) = tmp_path.glob("*.ptx")
    text = ptx.read_text(encoding="utf-8")
    assert set(re.findall(r"^\s*([\w.:]+)[ ;]", text, re.MULTILINE)) >= INSTRUCTIONS
    assert "%globaltimer" in text

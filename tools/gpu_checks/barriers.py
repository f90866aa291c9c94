"""The program that says what a barrier costs, which is compiled with the kernels' own headers."""

import os
import shutil
from pathlib import Path

__all__ = ["PROBE_NAME", "compiler", "probe_command"]

PROBE_NAME = "barrier_probe"


def compiler() -> str | None:
    """Return the CUDA compiler of this machine."""
    return os.environ.get("CUDACXX") or shutil.which("nvcc")


def probe_command(root: Path, program: Path, architecture: str) -> list[str] | None:
    """Return the command that compiles the probe, or None where there is no compiler.

    Parameters
    ----------
    root : Path
        Of the checkout.
    program : Path
        What is made.
    architecture : str
        For what, as nvcc has it: "sm_90" or "native".
    """
    if (nvcc := compiler()) is None:
        return None
    folders = (root / "packages/tensor-ops-cuda/native", root / "native", root / "native/include")
    options = ["-std=c++17", "-O3", f"-arch={architecture}", "--expt-relaxed-constexpr"]
    options += [f"-I{folder}" for folder in folders]
    source = root / "benchmarks/gpu" / f"{PROBE_NAME}.cu"
    return [nvcc, *options, str(source), "-o", str(program)]

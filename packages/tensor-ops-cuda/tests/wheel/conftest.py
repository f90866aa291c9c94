"""A wheel as it is given away, built by the machine's nvcc; no GPU is needed."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2]
# Architectures of the goals; `nox -s nightly` names older and newer ones too.
ARCHITECTURES = os.environ.get("CUDA_WHEEL_ARCHITECTURES", "90-real")
# Elements with one and two inputs, rows, pairs: a quarter of the time to compile. --nightly adds
# the others.
QUICK_OPS = ("gelu_mul", "rms_norm", "rope", "silu")


@dataclass(frozen=True)
class Build:
    """A wheel, and what its build has printed: None for one that was there before."""

    wheel: Path
    log: str | None

    @property
    def architectures(self):
        """Architectures that the build has code for, such as ``sm_90`` and ``compute_120``."""
        return re.search(r"has code for: (.*)", self.log)[1].split()


@pytest.fixture(scope="session")
def build(request, tmp_path_factory):
    """The wheel of CUDA_WHEEL, or one that is built here for a few architectures."""
    if "CUDA_WHEEL" in os.environ:
        return Build(Path(os.environ["CUDA_WHEEL"]), None)
    usual = Path("/usr/local/cuda/bin/nvcc")
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc")
    nvcc = nvcc or (str(usual) if usual.exists() else None)
    if nvcc is None:
        pytest.skip("no nvcc is here: put it on the PATH, or set CUDACXX")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "--no-build-isolation"]
    settings = ["cmake.define.CMAKE_CUDA_FLAGS=-Xptxas=-v", "cmake.define.TENSOR_OPS_WERROR=ON"]
    if not request.config.getoption("--nightly"):
        settings.append(f"cmake.define.TENSOR_OPS_CUDA_OPS={';'.join(QUICK_OPS)}")
        settings.append("cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG")
    command += [word for setting in settings for word in ("--config-settings", setting)]
    variables = {"CUDACXX": nvcc, "TENSOR_OPS_CUDA_ARCHITECTURES": ARCHITECTURES}
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder), str(PACKAGE)],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    (wheel,) = folder.glob("*.whl")
    return Build(wheel, done.stdout)


@pytest.fixture(scope="session")
def site(build, tmp_path_factory):
    """A folder with what is in the wheel."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(build.wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="session")
def extension(site):
    """The Python module in the wheel."""
    (path,) = site.glob("tensor_ops_cuda/_native*.so")
    return path


@pytest.fixture(scope="session")
def library(site):
    """The library in the wheel, which has the kernels and CUDA's runtime."""
    return site / "tensor_ops_cuda/libtensor_ops_cuda.so"

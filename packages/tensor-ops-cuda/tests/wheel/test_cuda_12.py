"""The host's calls of CUDA's runtime exist in CUDA 12.9 as well, whose nvcc is not on PyPI."""

import os
import re
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

PACKAGE = Path(__file__).parents[2]
PYPI = Path(sysconfig.get_path("purelib"), "nvidia")
HEADERS = [PYPI / name / "include" for name in ("cuda_runtime", "cuda_nvcc")]
SOURCES = [
    path
    for path in sorted(PACKAGE.glob("native/*/*.cpp"))
    if re.search(r"\bcuda[A-Z]\w+\(", path.read_text(encoding="utf-8"))
]


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ is here")
@pytest.mark.skipif(
    not all(path.exists() for path in HEADERS),
    reason="no headers: pip install nvidia-cuda-runtime-cu12==12.9.* nvidia-cuda-nvcc-cu12==12.9.*",
)
def test_the_host_side_compiles_with_its_headers():
    nanobind = pytest.importorskip("nanobind")
    folders = [*HEADERS, sysconfig.get_path("include"), nanobind.include_dir(), np.get_include()]
    ours = [f"-I{folder / 'native'}" for folder in (PACKAGE, PACKAGE.parents[1])]
    options = ["-std=c++17", "-fsyntax-only", *ours]
    options += [word for folder in folders for word in ("-isystem", str(folder))]
    options += ['-DTENSOR_OPS_CUDA_ARCHITECTURES=""', '-DTENSOR_OPS_VERSION=""']

    def problems(source):
        command = ["g++", *options, str(source)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr

    assert SOURCES
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = "".join(pool.map(problems, SOURCES))
    assert not found, found

"""The tools on this machine that backends are built or run with, for reports."""

import contextlib
import ctypes.util
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from tensor_ops.backends import installed

__all__ = ["tools"]

# Packages on PyPI that are OpenCL drivers.
OPENCL_PACKAGES = ("pocl-binary-distribution", "intel-opencl-rt")


def tools() -> dict[str, dict[str, str | None]]:
    """Return the tools that backends are built or run with: where each is, or None."""
    # The .icd files, each of which names an OpenCL implementation, and the packages that are one.
    vendors = Path(os.environ.get("OCL_ICD_VENDORS") or "/etc/OpenCL/vendors")
    versions = {name: installed.version_of(name) for name in OPENCL_PACKAGES}
    drivers = [
        *sorted(map(str, vendors.glob("*.icd"))),
        *(f"{name} {version}" for name, version in versions.items() if version),
    ]
    return {
        "C++ compiler": _tool("cpp", _compiler()),
        "nvcc": _tool("cuda", _nvcc()),
        "NVIDIA driver": _tool(
            "cuda",
            _which("nvidia-smi"),
            "--query-gpu=name,driver_version",
            "--format=csv,noheader",
        ),
        "OpenCL loader": {"backend": "opencl", "path": _opencl_loader(), "version": None},
        "OpenCL drivers": {
            "backend": "opencl",
            "path": ", ".join(drivers) or None,
            "version": None,
        },
    }


def _which(name: str) -> str | None:
    """Return where a program is, unless that is the current directory, where Windows looks first.

    The program is run, and anybody may have put anything there.
    """
    found = shutil.which(name)
    return found if found and os.path.isabs(found) else None


def _compiler() -> str | None:
    wanted = os.environ.get("CXX", "").split()[:1]
    for name in [*wanted, "c++", "g++", "clang++", "cl"]:
        if path := _which(name):
            return path
    return None


def _nvcc() -> str | None:
    places = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    candidates = [Path(place, "bin", "nvcc") for place in places if place]
    return _which("nvcc") or next((str(p) for p in candidates if p.is_file()), None)


def _opencl_loader() -> str | None:
    """Return the system's loader, else pyopencl's folder: its wheels have one inside."""
    # It asks a compiler, through a temporary file, which a container may have no room for.
    with contextlib.suppress(OSError):
        if found := ctypes.util.find_library("OpenCL"):
            return found
    pyopencl = importlib.util.find_spec("pyopencl")
    return str(Path(pyopencl.origin).parent) if pyopencl and pyopencl.origin else None


def _tool(backend: str, path: str | None, *query: str) -> dict[str, str | None]:
    version = _version(path, *query) if path else None
    return {"backend": backend, "path": path, "version": version}


def _version(path: str, *query: str) -> str | None:
    lines = _output(path, *(query or ("--version",)))
    # The first line of nvcc is its name; a later one has the release.
    release = [line for line in lines if "release" in line]
    return next(iter([*release, *lines]), None)


def _output(*command: str) -> list[str]:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=False, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]

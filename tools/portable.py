"""Check the C++ backend for machines that this one is not.

    python tools/portable.py [--work FOLDER] [--all] [CHECK ...]

``x86-64`` and ``aarch64`` build a wheel and run the conformance suite's samples and every node of
decode programs on emulated processors; ``clang`` compiles the sources for other systems and links
nothing. `nox -s portable` starts these. ``windows`` and ``musl`` build the library and run it by
its C interface; ``macos`` links it; ``pythons`` runs the tests on Pythons that are not here. The
sessions of these names start them. A check for which a program is missing is left out, and says
which one and how to get it; with --all it has failed.
"""

import argparse
import concurrent.futures
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from portable_checks.common import (
    NATIVE,
    PACKAGE,
    ROOT,
    SHARED,
    MissingProgramError,
    call,
    folder,
    pip_install,
)
from portable_checks.debian import unpacked
from portable_checks.pythons import check_pythons
from portable_checks.systems import (
    aarch64_compilers,
    check_macos,
    check_musl,
    check_windows,
    run_tests,
    zig,
)

__all__ = ["main"]

# The fewest processors that have the level, and no more than it.
PROCESSORS = {"x86-64-v2": "Nehalem", "x86-64-v3": "Haswell"}
BELOW_EVERY_LEVEL = "qemu64"
# The last whose wheels do not need x86-64-v2 themselves.
MODEST_NUMPY = "numpy==2.2.*"
PRODUCT_TESTS = "packages/tensor-ops-cpp/tests/test_decode_products.py"
NEEDED = ["numpy>=2.2", "ml_dtypes", "platformdirs", "pytest>=9", "hypothesis>=6.150", "mpmath"]
NEEDED += ["gguf>=0.18", "jinja2>=3.1.6", "tokenizers>=0.22"]
PURE = [f"{ROOT}/packages/tensor-ops", f"{ROOT}/packages/tensor-ops-decode"]
# All ops, dtypes and layouts; an emulated processor is slow.
SMALL = "test_op_samples or test_layouts or test_shapes"
ARM64_PACKAGES = [
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libssl3", "libffi8"),
    *("libbz2-1.0", "liblzma5", "libsqlite3-0", "libuuid1"),
]
# AArch64 processors, and the fastest variant of products that each has.
ARM_PROCESSORS = {
    "cortex-a72": "neon",
    "neoverse-n1": "neon+dotprod",
    "max": "neon+dotprod+i8mm+bf16",
}
# Programs that use the headers of the C++ API, which have code for each system.
PROGRAMS = [
    "examples/cpp/*.cpp",
    "tests/cpp_api/programs/*.cpp",
    "tests/decode/helpers/cpp_decoder/driver.cpp",
]
# The levels to compile for; kernels are the same on every system.
TARGETS = {
    "x86_64-linux-gnu.2.28": ["x86_64_v2", "x86_64_v3", "x86_64_v4"],
    "aarch64-linux-gnu.2.28": ["neon"],
    "aarch64-macos": ["neon"],
    "x86_64-macos": ["x86_64_v2"],
    "x86_64-windows-gnu": ["x86_64_v2"],
    "aarch64-windows-gnu": ["neon"],
}
# Variants of products whose instructions compilers know by different names, with the formats and
# the flags of cmake/levels.cmake, as zig spells them.
PRODUCTS = {
    "neon_i8mm": (
        ("formats/[mnq]*.cpp", "formats/iq4_nl.cpp", "layouts/*.cpp"),
        ["-mcpu=generic+v8_2a+dotprod+i8mm", "-DTENSOR_OPS_MATRIX_INT8"],
    ),
    "neon_bf16": (("formats/bf16.cpp",), ["-mcpu=generic+v8_2a+dotprod+i8mm+bf16"]),
}
# Checks that run if none is named.
BY_DEFAULT = ("x86-64", "aarch64", "clang")
# Where NumPy's headers are not those of Linux.
NUMPY_PLATFORMS = {"macos": "macosx_14_0_arm64", "windows": "win_amd64"}
# Folders of sources that go into the Python module; all others go into the library.
OF_THE_MODULE = {"arrays", "binding", "python"}
# Warnings of CMakeLists.txt. A loop that clang cannot vectorize is slow there, not wrong.
WARNINGS = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-error=pass-failed"]
KERNEL_FLAGS = [
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd"),
    *("-fno-exceptions", "-fno-rtti", "-fvisibility=hidden"),
]
# Macros that the extension needs of Python's own pyconfig.h for Windows, which is not on PyPI.
WINDOWS_CONFIGURATION = """\
#pragma once
#include <io.h>
#include <stdio.h>
#define MS_WINDOWS
#define MS_WIN32
#define MS_WIN64
#define NT_THREADS
#define WITH_THREAD
#define HAVE_DECLSPEC_DLL
#define HAVE_STDINT_H 1
#define Py_ENABLE_SHARED 1
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_OFF_T 4
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_WCHAR_T 2
"""


def main() -> int:
    """Run the checks named on the command line, or all; return the process's exit status."""
    checks: dict[str, Callable[[Path], None]] = {
        "x86-64": check_x86_64,
        "aarch64": check_aarch64,
        "clang": check_clang,
        "windows": check_windows,
        "musl": check_musl,
        "macos": check_macos,
        "pythons": check_pythons,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, default=ROOT / "build/portable", metavar="FOLDER")
    parser.add_argument("--all", action="store_true", help="fail where a program is missing")
    parser.add_argument("checks", nargs="*", metavar="|".join(checks), default=[])
    arguments = parser.parse_args()
    if unknown := set(arguments.checks) - checks.keys():
        parser.error(f"there is no check {', '.join(sorted(unknown))}")
    outcomes = {}
    for name in arguments.checks or BY_DEFAULT:
        work = arguments.work.resolve() / name
        work.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        try:
            checks[name](work)
            outcomes[name] = "passed"
        except MissingProgramError as error:
            outcomes[name] = f"{'FAILED' if arguments.all else 'SKIPPED'}: {error}"
        except subprocess.CalledProcessError as error:
            outcomes[name] = f"FAILED: {shlex.join(map(str, error.cmd))[:300]}"
        outcomes[name] += f" ({time.monotonic() - start:.0f} s)"
    print(*(f"portable: {name}: {outcome}" for name, outcome in outcomes.items()), sep="\n")
    return int(any(outcome.startswith("FAILED") for outcome in outcomes.values()))


def check_x86_64(work: Path) -> None:
    """Run the suite on a processor of each level but the highest; below all, be told why not."""
    if platform.machine() not in {"x86_64", "AMD64"}:
        raise MissingProgramError(f"needs an x86-64 machine, and this is {platform.machine()}")
    system = unpacked(work / "tools", ["qemu-user-static"])
    qemu = str(system / "usr/bin/qemu-x86_64-static")
    wheel = build_wheel(work)
    site = folder(work / "site")
    pip_install(site, NEEDED)
    pip_install(site, ["--no-deps", *PURE, str(wheel)])
    for level, cpu in PROCESSORS.items():
        python = [qemu, "-cpu", cpu, sys.executable]
        run_suite(python, site, level)
    modest = folder(work / "modest")
    pip_install(modest, [MODEST_NUMPY])
    pip_install(modest, ["--no-deps", str(wheel)])
    code = "import tensor_ops_cpp as t; why = t.probe()['reason']; print(why)\n"
    code += "assert t.simd_level is None and 'lacks x86-64-v2' in why"
    python = [qemu, "-cpu", BELOW_EVERY_LEVEL, sys.executable]
    call([*python, "-c", code], {"PYTHONPATH": str(modest)})


def check_aarch64(work: Path) -> None:
    """Build the wheel for aarch64 and run the suite there, and the library by its C interface."""
    system = unpacked(work / "tools", ["g++-aarch64-linux-gnu", "qemu-user-static"])
    compilers, environment = aarch64_compilers(system)
    qemu = str(system / "usr/bin/qemu-aarch64-static")
    arm64 = arm64_system(work)
    definitions = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": "aarch64",
    }
    of_build = {
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-3{sys.version_info[1]}-aarch64-linux-gnu.so",
        "CXX": compilers["c++"],
    }
    wheel = build_wheel(work, definitions, environment | of_build)
    check_products(work, compilers["c++"], [qemu, "-L", str(arm64)], environment)
    (library,) = (work / "build").rglob("libtensor_ops_cpp.so")
    described = {
        "name": "aarch64",
        "c": [compilers["c"]],
        "cxx": [compilers["c++"]],
        "launcher": [qemu, "-cpu", "max", "-L", str(arm64)],
        "library": str(library),
        "levels": ["neon"],
        "linked": ["-pthread", "-ldl"],
    }
    run_tests(work, described, environment)
    site = folder(work / "site")
    pip_install(site, NEEDED, ["manylinux_2_28_aarch64", "manylinux2014_aarch64"])
    pip_install(site, ["--no-deps", *PURE])
    pip_install(site, ["--no-deps", str(wheel)], ["linux_aarch64"])
    python = [qemu, "-cpu", "max", "-L", str(arm64), f"{arm64}/usr/bin/{python_name()}"]
    run_suite(python, site, "neon")
    # A fifth of its cases, which take half an hour: check_products has compared every variant.
    tests = [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", PRODUCT_TESTS, "--every", "5"]
    call(tests, {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"})


def check_products(
    work: Path, compiler: str, emulator: list[str], environment: Mapping[str, str]
) -> None:
    """Compare the variants of products on each processor, by the library that was built."""
    (library,) = (work / "build").rglob("libtensor_ops_cpp.so")
    checks = work / "check_products"
    command = [compiler, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(checks)]
    command += [f"-I{NATIVE}", f"-I{SHARED}", f"{PACKAGE}/tests/native/check_products.cpp"]
    call([*command, str(library), f"-Wl,-rpath,{library.parent}"], environment)
    for cpu, variant in ARM_PROCESSORS.items():
        call([*emulator, "-cpu", cpu, str(checks), variant], {})


def check_clang(work: Path) -> None:
    """Compile every source for every system with clang, warnings being errors."""
    compiler = str(zig())
    commands = []
    for target in TARGETS:
        objects = folder(work / target)
        compiled = [*compilations(target, includes(work, target), objects)]
        compiled += programs(target, objects)
        commands += [[compiler, "c++", "-target", target, *words] for words in compiled]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(lambda command: call(command, {}), commands):
            pass


def compilations(target: str, includes: list[str], objects: Path) -> Iterable[list[str]]:
    """Return the arguments of each compilation for a target."""
    # zig leaves an object in the current directory for one that goes nowhere
    optimization = "-O1" if "linux" in target else "-O0"
    ops = sorted(NATIVE.glob("ops/*.cpp"))
    version = '-DTENSOR_OPS_VERSION="0"'
    names = [source.stem for source in ops]
    listed = "".join(f'#include "declaration/ops/{name}.h"\n' for name in names)
    listed += f"#define TENSOR_OPS_FOR_EACH_OP(X) {' '.join(f'X({name})' for name in names)}\n"
    (objects / "op_files.h").write_text(listed)  # as CMake writes it
    includes = [*includes, f"-I{objects}"]
    sources = {
        *NATIVE.glob("*/*.cpp"),
        *SHARED.glob("*/*.cpp"),
        *NATIVE.glob("decode/products/*.cpp"),
    }
    for source in sorted(sources - {*ops}):
        output = ["-c", "-o", f"{objects}/{source.stem}.o"]
        if source.parent.name not in OF_THE_MODULE:
            output.append("-DTENSOR_OPS_BUILDS_LIBRARY")
        yield [*WARNINGS, optimization, *includes, version, *output, str(source)]
    for level in TARGETS[target]:
        flags = [*WARNINGS, *KERNEL_FLAGS, f"-DTENSOR_OPS_LEVEL={level}", *includes]
        if level.startswith("x86"):
            flags.append(f"-mcpu={level}")
        for source in ops:
            output = ["-c", "-o", f"{objects}/{source.stem}-{level}.o"]
            yield [*flags, optimization, *output, str(source)]
    for variant, (formats, processor) in PRODUCTS.items() if "aarch64" in target else ():
        flags = [*WARNINGS, *KERNEL_FLAGS, f"-DTENSOR_OPS_LEVEL={variant}", *includes, *processor]
        products = (NATIVE.glob(f"decode/products/{each}") for each in formats)
        for source in sorted(path for paths in products for path in paths):
            output = ["-c", "-o", f"{objects}/{source.stem}-{variant}.o"]
            yield [*flags, optimization, *output, str(source)]


def programs(target: str, objects: Path) -> Iterable[list[str]]:
    """Return the arguments of each compilation of a program that uses the C++ API."""
    everything = objects / "all_headers.cpp"
    names = [path.relative_to(SHARED / "include") for path in SHARED.glob("include/**/*.h")]
    everything.write_text("".join(f"#include <{name}>\n" for name in sorted(names)))
    sources = [everything, *(path for pattern in PROGRAMS for path in ROOT.glob(pattern))]
    for source in sorted(sources):
        if "windows" in target and "<dlfcn.h>" in source.read_text(encoding="utf-8"):
            continue  # a test that is not for Windows
        output = ["-c", "-o", f"{objects}/program-{source.stem}.o"]
        yield [*WARNINGS, "-O0", f"-I{SHARED}/include", *output, str(source)]


def includes(work: Path, target: str) -> list[str]:
    """Return the options that find the headers of nanobind, NumPy and Python for a target."""
    import nanobind  # type: ignore[import-untyped]
    import numpy

    system = target.split("-")[1]
    python, numpy_headers = sysconfig.get_path("include"), numpy.get_include()
    if system in NUMPY_PLATFORMS:
        site = folder(work / f"numpy-{system}")
        version = f"numpy=={numpy.__version__}"
        pip_install(site, ["--no-deps", version], [NUMPY_PLATFORMS[system]])
        numpy_headers = str(site / "numpy/_core/include")
    if system == "windows":
        headers = work / "python-windows"
        shutil.copytree(python, headers, dirs_exist_ok=True)
        (headers / "pyconfig.h").write_text(WINDOWS_CONFIGURATION, encoding="utf-8")
        python = str(headers)
    words = [f"-I{NATIVE}", f"-I{SHARED}", f"-I{SHARED}/include"]
    for headers_of in (nanobind.include_dir(), numpy_headers, python):
        words += ["-isystem", headers_of]
    return words


def build_wheel(
    work: Path, definitions: Mapping[str, str] = {}, environment: Mapping[str, str] = {}
) -> Path:
    """Build the package's wheel, warnings being errors, with what is installed here."""
    dist = folder(work / "dist")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    settings = {f"cmake.define.{name}": value for name, value in definitions.items()}
    settings |= {"cmake.define.TENSOR_OPS_WERROR": "ON", "build-dir": str(work / "build")}
    for name, value in settings.items():
        command += ["-C", f"{name}={value}"]
    call([*command, "-w", str(dist), str(PACKAGE)], environment)
    (wheel,) = dist.glob("*.whl")
    return wheel


def arm64_system(work: Path) -> Path:
    """Return a folder with Debian's Python for arm64 and what it is linked with."""
    python = python_name()
    wanted = [f"{python}-minimal", f"lib{python}-minimal", f"lib{python}-stdlib", *ARM64_PACKAGES]
    return unpacked(work / "debian", wanted, "arm64", alone=True)


def run_suite(python: list[str], site: Path, level: str) -> None:
    """Run samples of all ops and nodes on an emulated processor that has a level."""
    print(f"--- {level}: {shlex.join(python)}", flush=True)
    environment = {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    code = f"import tensor_ops_cpp as t; assert t.simd_level == {level!r}, t.simd_level"
    call([*python, "-c", code], environment)
    tests = [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    only = ["--backend=cpp", "--require-backend=cpp"]
    call([*tests, "tests/conformance/test_samples.py", *only, "-k", SMALL], environment)
    call([*tests, "tests/decode/programs/test_nodes.py", *only], environment)


def python_name() -> str:
    return f"python3.{sys.version_info[1]}"


if __name__ == "__main__":
    sys.exit(main())

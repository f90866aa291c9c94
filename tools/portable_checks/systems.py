"""The library on other operating systems: built, linked, and run where something here can.

Windows: Debian's MinGW-w64 and Wine. musl: clang of PyPI's ziglang, and Debian's musl. macOS: clang
again, which links and cannot run. Nothing of these is installed.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from portable_checks.common import MissingProgramError, build_library, call
from portable_checks.debian import unpacked

__all__ = ["aarch64_compilers", "check_macos", "check_musl", "check_windows", "run_tests", "zig"]

TESTS = ["tests/platforms", "tests/native"]
# Wine without windows, and without what it would offer to install.
WINE = {"WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree=;mshtml=;winemenubuilder.exe="}
# A loop that clang cannot vectorize is slow there, not wrong.
CLANG = {"CMAKE_CXX_FLAGS": "-Wno-error=pass-failed"}
MUSL = "x86_64-linux-musl"
MACOS = {"x86_64": "x86_64-macos", "arm64": "aarch64-macos"}


def check_windows(work: Path) -> None:
    """Build the library with MinGW, and run its tests, and the examples, under Wine."""
    system = unpacked(work / "debian", ["g++-mingw-w64-x86-64-posix", "wine64"])
    compilers = {
        name: str(system / f"usr/bin/x86_64-w64-mingw32-{program}-posix")
        for name, program in {"c": "gcc", "c++": "g++"}.items()
    }
    definitions = {
        "CMAKE_SYSTEM_NAME": "Windows",
        "CMAKE_SYSTEM_PROCESSOR": "AMD64",
        "CMAKE_C_COMPILER": compilers["c"],
        "CMAKE_CXX_COMPILER": compilers["c++"],
    }
    installed, examples = build_library(work, definitions)
    (library,) = installed.rglob("*tensor_ops_cpp.dll")
    runtime = _mingw_libraries(system, work / "runtime")
    # Windows looks for libraries beside a program.
    for each in runtime.iterdir():
        shutil.copy(each, library.parent)
    for each in library.parent.glob("*.dll"):
        shutil.copy(each, examples)
    server, environment = _prepare_wine(system, work)
    wine = str(system / "usr/lib/wine/wine64")
    described = {
        "name": "windows",
        "c": [compilers["c"]],
        "cxx": [compilers["c++"]],
        "launcher": [wine],
        "library": str(library),
        "levels": _levels_here(),
        "environment": environment,
        "runtime": [str(runtime)],
        "examples": str(examples),
    }
    try:
        call([server, "-p"], environment)  # it stays, instead of being started by each program
        # The first program fails, since Wine makes the folders of its Windows meanwhile.
        subprocess.run([wine, "wineboot"], env=os.environ | environment, check=False)
        run_tests(work, described)
    finally:
        subprocess.run([server, "-k"], env=os.environ | environment, check=False)


def check_musl(work: Path) -> None:
    """Build the library for musl with clang, and run its tests with Debian's musl."""
    system = unpacked(work / "debian", ["musl"])
    compilers = _clang(MUSL)
    definitions = {
        "CMAKE_C_COMPILER": ";".join(compilers["cc"]),
        "CMAKE_CXX_COMPILER": ";".join(compilers["c++"]),
    }
    definitions |= CLANG | {"CMAKE_EXE_LINKER_FLAGS": "-dynamic"}
    installed, examples = build_library(work, definitions)
    (library,) = installed.rglob("libtensor_ops_cpp.so")
    described = {
        "name": "musl",
        "c": compilers["cc"],
        "cxx": compilers["c++"],
        "launcher": [str(system / "usr/lib/x86_64-linux-musl/libc.so")],
        "library": str(library),
        "levels": _levels_here(),
        "linked": ["-dynamic"],
        "examples": str(examples),
    }
    run_tests(work, described)


def check_macos(work: Path) -> None:
    """Compile and link the library and the programs that use it for both kinds of Macs."""
    for processor, target in MACOS.items():
        compilers = _clang(target)
        definitions = {
            "CMAKE_SYSTEM_NAME": "Darwin",
            "CMAKE_SYSTEM_PROCESSOR": processor,
            "CMAKE_C_COMPILER": ";".join(compilers["cc"]),
            "CMAKE_CXX_COMPILER": ";".join(compilers["c++"]),
        }
        # Quickly compiled: it is linked, and no more.
        build_library(work / processor, definitions | CLANG | {"CMAKE_BUILD_TYPE": "Debug"})


def run_tests(
    work: Path, described: Mapping[str, Any], environment: Mapping[str, str] = {}
) -> None:
    """Run the tests of another system, which a file describes to them.

    What is compiled by them is compiled in the environment.
    """
    file = work / "system.json"
    file.write_text(json.dumps(described, indent=2), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    call([*command, "--nightly", f"--system={file}"], environment)


def zig() -> Path:
    """Return the program of PyPI's ziglang."""
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        raise MissingProgramError("needs ziglang, which has clang; pip install ziglang")
    return Path(found.origin).with_name("zig")


def aarch64_compilers(system: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return Debian's compilers for aarch64 in a folder, and the environment that they run in."""
    script = system / "usr/aarch64-linux-gnu/lib/libc.so"  # the linker's, with paths in /usr
    text = script.read_text(encoding="utf-8")
    if " /usr/aarch64-linux-gnu/lib/" in text:
        script.write_text(text.replace(" /usr/", f" {system}/usr/"), encoding="utf-8")
    programs = {"c": "gcc", "c++": "g++"}
    compilers = {
        name: str(system / f"usr/bin/aarch64-linux-gnu-{each}") for name, each in programs.items()
    }
    return compilers, {"LD_LIBRARY_PATH": str(system / "usr/lib/x86_64-linux-gnu")}


def _clang(target: str) -> dict[str, list[str]]:
    """Return the commands of zig's compilers of C and C++ for a target."""
    start = [sys.executable, str(Path(__file__).with_name("zig_compiler.py")), str(zig())]
    return {name: [*start, name, "-target", target] for name in ("cc", "c++")}


def _levels_here() -> list[str]:
    """Return the levels of this processor, as its own build of the library knows them."""
    import tensor_ops_cpp

    return list(tensor_ops_cpp.get_optimization_info()["cpu_levels"])


def _mingw_libraries(system: Path, place: Path) -> Path:
    """Copy the libraries of the compiler, which programs find beside them, into a folder."""
    place.mkdir(exist_ok=True)
    of_compiler = "usr/lib/gcc/x86_64-w64-mingw32/12-posix"
    for name in (
        f"{of_compiler}/libstdc++-6.dll",
        f"{of_compiler}/libgcc_s_seh-1.dll",
        "usr/x86_64-w64-mingw32/lib/libwinpthread-1.dll",
    ):
        shutil.copy(system / name, place)
    return place


def _prepare_wine(system: Path, work: Path) -> tuple[str, dict[str, str]]:
    """Make Wine find its parts in a folder; return its server, and the environment to run in."""
    server = system / "usr/lib/wine/wineserver64"
    # In their places are a script and a path of Debian's, which look in /usr alone.
    by_script = server.with_name("wineserver")
    by_script.unlink(missing_ok=True)
    by_script.symlink_to(server.name)
    libraries = system / "usr/lib/x86_64-linux-gnu"
    shutil.copy(system / "usr/x86_64-w64-mingw32/lib/zlib1.dll", libraries / "wine/x86_64-windows")
    (work / "wine").mkdir(exist_ok=True)  # where the server starts
    environment = {
        **WINE,
        "WINEPREFIX": str(work / "wine"),
        "LD_LIBRARY_PATH": str(libraries),
        "LC_ALL": "C.UTF-8",
    }
    return str(server), environment

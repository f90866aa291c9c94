"""Commands, folders and programs of the checks."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = [
    "NATIVE",
    "PACKAGE",
    "ROOT",
    "SHARED",
    "MissingProgramError",
    "build_library",
    "call",
    "folder",
    "pip_install",
    "program",
]

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "packages/tensor-ops-cpp"
NATIVE = PACKAGE / "native"
# Sources that all native packages share.
SHARED = ROOT / "native"


class MissingProgramError(Exception):
    """A check cannot run here; the message says what it takes."""


def call(command: list[str], environment: Mapping[str, str] = {}, where: Path = ROOT) -> None:
    """Run a command that must not fail."""
    subprocess.run(command, env=os.environ | environment, cwd=where, check=True)


def folder(path: Path) -> Path:
    """Return an empty folder of that name."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def program(name: str, package: str) -> str:
    """Return the path of a program of this machine."""
    found = shutil.which(name)
    if found is None:
        raise MissingProgramError(f"{name} is not installed; apt-get install {package}")
    return found


def pip_install(site: Path, wanted: list[str], platforms: Iterable[str] = ()) -> None:
    """Install into a folder; for other platforms only what has wheels."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", str(site)]
    for name in platforms:
        command += ["--only-binary=:all:", "--platform", name]
    call([*command, *wanted])


def build_library(
    work: Path, definitions: Mapping[str, str], environment: Mapping[str, str] = {}
) -> tuple[Path, Path]:
    """Build the library without Python, warnings being errors, and the programs of examples/cpp.

    Returns the folder that it is installed in, and that of the programs.
    """
    settings = {"CMAKE_BUILD_TYPE": "Release", "TENSOR_OPS_CCACHE": "OFF", **definitions}
    words = ["-G", "Ninja", *(f"-D{name}={value}" for name, value in settings.items())]
    library, programs, installed = work / "library", work / "examples", folder(work / "installed")
    sources = ["-DTENSOR_OPS_WERROR=ON", f"-DCMAKE_INSTALL_PREFIX={installed}"]
    call(["cmake", "-S", str(PACKAGE), "-B", str(library), *words, *sources], environment)
    call(["cmake", "--build", str(library)], environment)
    call(["cmake", "--install", str(library)], environment)
    (config,) = installed.rglob("tensor_opsConfig.cmake")
    found = f"-Dtensor_ops_DIR={config.parent}"
    examples = str(ROOT / "examples/cpp")
    call(["cmake", "-S", examples, "-B", str(programs), *words, found], environment)
    call(["cmake", "--build", str(programs)], environment)
    return installed, programs

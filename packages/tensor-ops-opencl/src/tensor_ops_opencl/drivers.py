"""Drivers of OpenCL: Intel's from PyPI, which nothing else registers, and those that do not load.

The wheel of intel-opencl-rt has .icd files for the loader, but with the path of the machine that
made the wheel. `registered` therefore names its library to the loader.
"""

import ctypes
import os
import platform
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tensor_ops_opencl.errors import first_line

__all__ = ["INTEL", "POCL", "broken", "for_cpu", "installed", "registered", "HAS_WHEELS_OF_INTEL"]

# These name other drivers to the loader than the system's; whoever sets one has chosen drivers.
_CHOICES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")

#: The platform of Intel's driver for CPUs, and that of PoCL.
INTEL = "Intel(R) OpenCL"
POCL = "Portable Computing Language"

_INSTALL_INTEL = "pip install intel-opencl-rt intel-cmplr-lib-rt"
_INSTALL_POCL = "pip install 'pyopencl[pocl]'"
_LIBRARIES = ("libintelocl.so", "intelocl64.dll")
HAS_WHEELS_OF_INTEL = sys.platform in ("linux", "win32") and platform.machine().lower() in (
    "x86_64",
    "amd64",
)


@contextmanager
def registered() -> Iterator[None]:
    """Let the loader find Intel's driver of this Python environment beside all others.

    The loader reads its settings once, when platforms are first asked for, and this is for that
    moment. It changes nothing where there is no such driver, or the user has chosen drivers.
    """
    library = installed()
    if library is None or _choice() is not None:
        yield
    elif sys.platform == "win32":
        # Loads it with the libraries beside it, which the loader does not look for.
        _problem_with(library)
        named = filter(None, [os.environ.get("OCL_ICD_FILENAMES"), str(library)])
        with _set("OCL_ICD_FILENAMES", os.pathsep.join(named)):
            yield
    else:
        with _folder_naming(library) as folder, _set("PYOPENCL_HOME", folder):
            yield


def installed() -> Path | None:
    """Return the library of intel-opencl-rt in this Python environment, None if there is none."""
    try:
        files = distribution("intel-opencl-rt").files or []
    except PackageNotFoundError:
        return None
    libraries = (Path(str(file.locate())).resolve() for file in files if file.name in _LIBRARIES)
    return next((library for library in libraries if library.exists()), None)


def for_cpu(tried: Collection[str] = ()) -> str:
    """Return what to do for a driver that runs on this machine's CPU, in words.

    `tried` are the platforms that are there and do not run on it.
    """
    if tried and (INTEL in tried or not HAS_WHEELS_OF_INTEL):
        return "install a newer one"
    library = installed()
    if library is None:
        return _INSTALL_INTEL if HAS_WHEELS_OF_INTEL else _INSTALL_POCL
    problem = _problem_with(library)
    if problem is not None:
        return f"{library} does not load ({problem}): {_INSTALL_INTEL}"
    choice = _choice()
    if choice is not None:
        return f"{library} is installed, and {choice} leaves it out: unset {choice}"
    return (
        f"{library} is installed, and OpenCL was used without it: call tensor_ops_opencl before "
        f"other users of pyopencl, or start Python with OCL_ICD_VENDORS={library}"
    )


def broken() -> list[str]:
    """Return the .icd files, and the driver of this environment, that do not load, with reasons."""
    named = os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OPENCL_VENDOR_PATH")
    folder = Path(named or "/etc/OpenCL/vendors")
    files = [folder] if folder.suffix == ".icd" else sorted(folder.glob("*.icd"))
    problems = [(file.name, _problem_in(file)) for file in files]
    library = installed()
    if library is not None and _choice() is None:
        problems.append((library.name, _problem_with(library)))
    return [f"{name}: {problem}" for name, problem in problems if problem is not None]


def _choice() -> str | None:
    return next((name for name in _CHOICES if os.environ.get(name)), None)


@contextmanager
def _folder_naming(library: Path) -> Iterator[str]:
    """Make a folder that takes the place of pyopencl's own, whose drivers it names as well.

    Of the places that the loader reads, this is the one beside which the system's drivers count.
    """
    own = os.environ.get("PYOPENCL_HOME", os.devnull)
    with ExitStack() as made:
        try:
            folder = made.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            _write_names(Path(folder, ".libs"), library, Path(own, ".libs"))
        except OSError:  # nothing can be written: the loader finds what it would find without us
            folder = own
        yield folder


def _write_names(folder: Path, library: Path, own: Path) -> None:
    """Write .icd files for a library and for the drivers that another folder names."""
    folder.mkdir()
    for file in own.glob("*.icd"):
        name = file.read_text(encoding="utf-8").strip()
        beside = own / name
        (folder / file.name).write_text(f"{beside if beside.is_file() else name}\n", "utf-8")
    (folder / "intel.icd").write_text(f"{library}\n", "utf-8")


@contextmanager
def _set(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _problem_in(file: Path) -> str | None:
    try:
        return _problem_with(file.read_text(encoding="utf-8").strip())
    except (OSError, ValueError) as error:
        return first_line(error)


def _problem_with(library: Path | str) -> str | None:
    try:
        ctypes.CDLL(str(library))
    except (OSError, ValueError) as error:
        return first_line(error)
    return None

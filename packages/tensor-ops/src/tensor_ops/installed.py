"""What is installed beside us for the known names that have no backend of their own.

The facts are read from files: nothing is imported for them, PyTorch least of all.

>>> about("cpp") is None
True
"""

from __future__ import annotations

import platform
import re
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

__all__ = ["PyTorch", "about", "pytorch", "version_of"]


class PyTorch(NamedTuple):
    """An installed PyTorch.

    Attributes
    ----------
    version : str
    cuda, hip : str or None
        The version of CUDA or ROCm that it was built for.
    has_mkl, has_mkldnn : bool or None
        Whether Intel MKL and oneDNN were built in; None if its headers, which say so, are not
        there.
    """

    version: str
    cuda: str | None
    hip: str | None
    has_mkl: bool | None
    has_mkldnn: bool | None

    @property
    def built_for(self) -> str:
        """What it was built for, in words."""
        if self.hip:
            return f"ROCm {self.hip}"
        return f"CUDA {self.cuda}" if self.cuda else "neither CUDA nor ROCm"


def pytorch() -> PyTorch | None:
    """Return what the files of an installed PyTorch say, None if there is none."""
    # Not importlib.util.find_spec(), which asks a module that is imported already.
    spec = PathFinder.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    version = _read(folder / "version.py")
    config = _read(folder / "include/ATen/Config.h")
    return PyTorch(
        _assigned(version, "__version__") or "of unknown version",
        _assigned(version, "cuda"),
        _assigned(version, "hip"),
        _enabled(config, "MKL"),
        _enabled(config, "MKLDNN"),
    )


def about(name: str) -> str | None:
    """Return what this machine has of a known name, in words; None if there is nothing to say."""
    describe = _DESCRIBED.get(name)
    return describe() if describe else None


def _torch() -> str | None:
    found = pytorch()
    return found and f"PyTorch {found.version} is, but not tensor-ops-torch"


def _mps() -> str | None:
    if platform.system() != "Darwin":
        return f"Apple's GPUs are in Macs, and this is {platform.system()}"
    return _with_pytorch("is installed")


def _rocm() -> str | None:
    found = pytorch()
    return found and f"PyTorch {found.version} is built for {found.built_for}"


def _tpu() -> str:
    return _distribution("torch_xla")


def _nki() -> str:
    return _distribution("neuronx-cc")


def _triton() -> str:
    return _distribution("triton")


def _cudnn() -> str | None:
    for name in ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"):
        if version := version_of(name):
            return f"{name} {version} is installed, and no op here calls it"
    found = pytorch()
    if found is None or found.cuda:
        return None
    return f"PyTorch {found.version} is built for {found.built_for}, so has no cuDNN"


def _mkl() -> str | None:
    return _within("Intel MKL", "has_mkl")


def _mkldnn() -> str | None:
    return _within("oneDNN", "has_mkldnn")


_DESCRIBED = {
    "torch": _torch,
    "mps": _mps,
    "rocm": _rocm,
    "tpu": _tpu,
    "nki": _nki,
    "triton": _triton,
    "cudnn": _cudnn,
    "mkl": _mkl,
    "mkldnn": _mkldnn,
}


def _with_pytorch(what: str) -> str:
    found = pytorch()
    return f"PyTorch {found.version} {what}" if found else "PyTorch is not installed"


def _within(library: str, attribute: str) -> str | None:
    found = pytorch()
    has = getattr(found, attribute, None)
    if found is None or has is None:
        return None
    if has:
        return f"PyTorch {found.version} has {library} within, for its own use"
    return f"PyTorch {found.version} is built without {library}"


def _distribution(name: str) -> str:
    version = version_of(name)
    return f"{name} {version} is installed, and no op here uses it" if version else f"no {name}"


def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution, None if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _assigned(text: str, name: str) -> str | None:
    """Return the string that a line of Python assigns to a name."""
    found = re.search(rf"^{name}\b[^=\n]*= *['\"](.*)['\"]", text, re.MULTILINE)
    return found[1] if found else None


def _enabled(text: str, library: str) -> bool | None:
    found = re.search(rf"^#define AT_{library}_ENABLED\(\) (\d)", text, re.MULTILINE)
    return found and found[1] == "1"

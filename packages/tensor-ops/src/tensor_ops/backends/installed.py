"""Packages that are installed beside us for the known names without a backend of their own.

The facts are read from files: nothing is imported for them, PyTorch least of all.

>>> about("cpp") is None
True
"""

import platform
import re
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

__all__ = ["PyTorch", "about", "command", "how_to_install", "pytorch", "version_of"]


class PyTorch(NamedTuple):
    """An installed PyTorch."""

    version: str
    # The version of CUDA or ROCm that it was built for.
    cuda: str | None
    hip: str | None
    # Whether Intel MKL and oneDNN were built in; None if its headers, which say so, are not there.
    has_mkl: bool | None
    has_mkldnn: bool | None

    @property
    def built_for(self) -> str:
        """The platform that it was built for, in words."""
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
    if name in _DISTRIBUTIONS:
        distribution = _DISTRIBUTIONS[name]
        version = version_of(distribution)
        if version is None:
            return f"no {distribution}"
        return f"{distribution} {version} is installed, and no op here uses it"
    if name == "mps" and platform.system() != "Darwin":
        return f"Apple's GPUs are in Macs, and this is {platform.system()}"
    if name == "cudnn":
        for distribution in ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"):
            if version := version_of(distribution):
                return f"{distribution} {version} is installed, and no op here calls it"
    found = pytorch()
    if found is None:
        return "PyTorch is not installed" if name == "mps" else None
    return _about_pytorch(found).get(name)


# The distributions of known names, for which nothing but a version is told.
_DISTRIBUTIONS = {"tpu": "torch_xla", "nki": "neuronx-cc", "triton": "triton"}


def _about_pytorch(found: PyTorch) -> dict[str, str | None]:
    version = f"PyTorch {found.version}"
    built = f"{version} is built for {found.built_for}"
    return {
        "torch": f"{version} is, but not tensor-ops-torch",
        "mps": f"{version} is installed",
        "rocm": built,
        "cudnn": None if found.cuda else f"{built}, so has no cuDNN",
        "mkl": _within(version, "Intel MKL", found.has_mkl),
        "mkldnn": _within(version, "oneDNN", found.has_mkldnn),
    }


def _within(version: str, library: str, has: bool | None) -> str | None:
    if has is None:
        return None
    if has:
        return f"{version} has {library} within, for its own use"
    return f"{version} is built without {library}"


def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution, None if it is not installed or damaged."""
    from importlib import metadata

    try:
        found = metadata.metadata(distribution)
    except metadata.PackageNotFoundError:
        return None
    if "Version" not in found:
        return None
    return found["Version"]


def command(extra: str) -> str:
    """Return the command that installs what an extra of tensor-ops does; none is tensor-ops itself.

    It takes the packages from where tensor_ops is: from the clone, or from the index.
    """
    if not _from_folder():
        return f"pip install 'tensor-ops[{extra}]'" if extra else "pip install tensor-ops"
    # What that of PyTorch depends on is not found by its name.
    needed = "./packages/tensor-ops-devices " if extra == "torch" else ""
    return f"pip install {needed}./packages/tensor-ops{extra and '-'}{extra}"


def how_to_install(extra: str) -> str:
    """Return what to do, in words and by the command."""
    return f"install it{' from a clone' if _from_folder() else ''}: {command(extra)}"


def _from_folder() -> bool:
    """Return whether tensor_ops was installed from a folder, which installers note (PEP 610)."""
    import json
    from importlib import metadata

    try:
        note = metadata.distribution("tensor-ops").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return True  # only its sources are there
    return note is not None and "dir_info" in json.loads(note)


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

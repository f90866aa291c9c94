"""torch_xla: which device of it is chosen, and whether this PyTorch can import it."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os

from tensor_ops_devices.pytorch import torch

__all__ = ["chosen_device", "is_installed", "why_not_importable"]


def is_installed() -> bool:
    """Return whether torch_xla is installed, without importing it."""
    return importlib.util.find_spec("torch_xla") is not None


def chosen_device() -> str | None:
    """Return the kind of device that ``PJRT_DEVICE`` names, as "TPU"; None if it names none."""
    # A slice of a TPU may be named with its chips, as "TPU_C2X2".
    return os.environ.get("PJRT_DEVICE", "").partition("_")[0] or None


def why_not_importable() -> str | None:
    """Import torch_xla and return why that fails, None if it works.

    A torch_xla fits the PyTorch of its own version only: its extension module calls C++ functions
    of PyTorch that other versions do not have.
    """
    try:
        importlib.import_module("torch_xla")
    except Exception as error:  # what a broken installation raises is not known
        reason = f"torch_xla cannot be imported: {type(error).__name__}: {error}"
        return f"{reason}; {_remedy()}"
    return None


def _remedy() -> str:
    try:
        installed = importlib.metadata.version("torch_xla")
    except importlib.metadata.PackageNotFoundError:
        installed = ""
    wanted, own = (".".join(each.split(".")[:2]) for each in (installed, torch.__version__))
    if not installed or wanted == own:
        return "install it anew: pip install --force-reinstall torch_xla"
    return (
        f"torch_xla {installed} is for PyTorch {wanted}, and {torch.__version__} is installed; "
        f"pip install 'torch=={wanted}.*', or the torch_xla of PyTorch {own}"
    )

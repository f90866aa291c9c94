"""The device that PyTorch computes on, found from the name of a backend.

>>> import tensor_ops_devices
>>> tensor_ops_devices.resolve_torch_device("cpu")
device(type='cpu')
"""

from __future__ import annotations

from collections.abc import Iterable

from tensor_ops import BackendError, BackendUnavailableError
from tensor_ops.extension import AUTO, did_you_mean, not_a_name
from tensor_ops_devices.pytorch import require, torch

__all__ = [
    "DEVICE_BACKENDS",
    "as_device",
    "build_name",
    "check_backend",
    "check_device",
    "resolve_torch_device",
    "why_not",
]

#: What a device may be asked for by, and the type of PyTorch's device that it means.
DEVICE_BACKENDS = {"auto": None, "cpu": "cpu", "cuda": "cuda", "rocm": "cuda", "mps": "mps"}
_ORDER = ("cuda", "mps", "cpu")
# Names that hardware has elsewhere. Nothing here serves some of it, though a name is near.
_MEANT: dict[str, tuple[str, ...]] = {
    "amd": ("rocm",),
    "apple": ("mps",),
    "coreml": ("mps",),
    "gpu": ("auto", "cuda", "rocm", "mps"),
    "hip": ("rocm",),
    "intel": ("cpu",),
    "metal": ("mps",),
    "migraphx": ("rocm",),
    "npu": (),
    "nvidia": ("cuda",),
    "radeon": ("rocm",),
    "tensorrt": ("cuda",),
    "tpu": (),
    "xpu": (),
}


def resolve_torch_device(backend: str | None) -> torch.device:
    """Return the device that a backend means, if it can be used.

    Parameters
    ----------
    backend : {"auto", "cpu", "cuda", "rocm", "mps"} or None
        ``"auto"`` takes a GPU of CUDA or ROCm if there is one, else Apple's (MPS), else the CPU.
        None, as of an option that was not given, is ``"auto"``.
        Any other is that one or an error. PyTorch calls the devices of CUDA and of ROCm ``cuda``;
        which of them it was built for tells ``torch.version.hip``.

    Returns
    -------
    torch.device
        Without an index: PyTorch's current device of that type.

    Raises
    ------
    BackendError
        If there is no such backend; the message gives the nearest one.
    BackendUnavailableError
        A BackendError: if PyTorch was built for another backend than the one asked for, or finds
        no device of it; if PyTorch is missing, too old, or cannot be imported.
    TypeError
        If `backend` is not a string.

    Examples
    --------
    >>> import tensor_ops_devices
    >>> device = tensor_ops_devices.resolve_torch_device("auto")
    >>> device.type in ("cuda", "mps", "cpu")
    True
    """
    backend = check_backend(backend, DEVICE_BACKENDS)
    require()
    if backend == AUTO:
        return torch.device(next(each for each in _ORDER if why_not(each) is None))
    kind = DEVICE_BACKENDS[backend]
    assert kind is not None
    reason = _mismatch(backend) or why_not(kind)
    if reason is not None:
        raise BackendUnavailableError(f"backend {backend!r} is unavailable: {reason}", backend)
    return torch.device(kind)


def check_backend(backend: str | None, known: Iterable[str]) -> str:
    """Return the name of a backend, which is checked; ``"auto"`` for None.

    Raises BackendError if it is none of `known`, TypeError if it is not a string.
    """
    if backend is None:
        return AUTO
    if not isinstance(backend, str):
        raise not_a_name(backend)
    if backend not in known:
        hint = did_you_mean(backend, known, _MEANT)
        raise BackendError(
            f"unknown backend {backend!r}; {hint}expected one of {', '.join(map(repr, known))}"
        )
    return backend


def check_device(backend: str | None, device: torch.device | str) -> torch.device:
    """Return a device, which must be usable and one that the backend means.

    Raises BackendError if it is no device, of another backend, or cannot be used.
    """
    backend = check_backend(backend, DEVICE_BACKENDS)
    found = as_device(device)
    if found.type not in _ORDER:
        raise BackendError(f"device {str(found)!r} has none of the types {', '.join(_ORDER)}")
    wanted = DEVICE_BACKENDS[backend]
    if wanted not in (None, found.type):
        raise BackendError(
            f"device {str(found)!r} is not of backend {backend!r}; pass "
            f"resolve_torch_device({backend!r}), or 'auto' as backend"
        )
    reason = _mismatch(backend) or why_not(found.type)
    if reason is None and found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        reason = f"PyTorch finds {torch.cuda.device_count()} such devices, counted from 0"
    if reason is not None:
        raise BackendUnavailableError(f"device {str(found)!r} is unavailable: {reason}", backend)
    return found


def as_device(device: torch.device | str) -> torch.device:
    """Return a device of PyTorch, or raise BackendError if it is none."""
    require()
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        instead = "pass what resolve_torch_device returns"
        if isinstance(device, str) and device in DEVICE_BACKENDS:
            instead = f"it is the name of a backend: pass resolve_torch_device({device!r})"
        hint = did_you_mean(device, (), _MEANT) if isinstance(device, str) else ""
        reason = str(error).partition("\n")[0]
        raise BackendError(
            f"{device!r} is no device of PyTorch; {hint}{instead} ({reason})"
        ) from error


def why_not(kind: str) -> str | None:
    """Return why PyTorch cannot use a type of device, None if it can."""
    if kind == "cuda" and not torch.cuda.is_available():
        if not (torch.version.cuda or torch.version.hip):
            return f"PyTorch {torch.__version__} is built for {build_name()}; {_OTHER_BUILD}"
        maker = "AMD" if torch.version.hip else "NVIDIA"
        return (
            f"torch.cuda.is_available() is False: no {maker} GPU that this process may use, or no "
            f"driver of it that fits {build_name()}"
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        return "torch.backends.mps.is_available() is False: it needs an Apple GPU and its macOS"
    return None


def build_name() -> str:
    """Return what PyTorch was built for: ``ROCm 6.4``, ``CUDA 13.0`` or ``the CPU only``."""
    if torch.version.hip:
        return f"ROCm {torch.version.hip}"
    if torch.version.cuda:
        return f"CUDA {torch.version.cuda}"
    return "the CPU only" if not torch.backends.mps.is_built() else "the CPU and Apple's GPUs"


_OTHER_BUILD = "https://pytorch.org/get-started/locally has the command that installs another build"


def _mismatch(backend: str) -> str | None:
    """Return why this build of PyTorch is not for a backend, None if it is."""
    is_built = {
        "cuda": bool(torch.version.cuda) and not torch.version.hip,
        "rocm": bool(torch.version.hip),
        "mps": torch.backends.mps.is_built(),
    }
    if is_built.get(backend, True):
        return None
    other = "rocm" if torch.version.hip else "cuda" if torch.version.cuda else None
    instead = f"ask for {other!r} or 'auto'" if other else "ask for 'cpu' or 'auto'"
    return f"PyTorch {torch.__version__} is built for {build_name()}; {instead}, or {_OTHER_BUILD}"

"""ONNX Runtime's execution providers, found from the name of a backend.

>>> import tensor_ops_devices
>>> tensor_ops_devices.resolve_ort_providers("cpu", ["CPUExecutionProvider"])
['CPUExecutionProvider']
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import ModuleType

from tensor_ops import BackendError, BackendUnavailableError
from tensor_ops.extension import AUTO, Choice, choose
from tensor_ops_devices.devices.device import DEVICE_BACKENDS, check_backend

__all__ = [
    "CPU",
    "ORDER",
    "PROVIDERS",
    "available_providers",
    "choose_provider",
    "onnxruntime",
    "ordered",
    "resolve_ort_providers",
]

CPU = "CPUExecutionProvider"

#: The providers that compute where a backend does, best first.
PROVIDERS = {
    "cuda": ("CUDAExecutionProvider",),
    "cudnn": ("CUDAExecutionProvider",),
    # AMD's first was taken out of ONNX Runtime 1.23 in favour of the second.
    "rocm": ("ROCMExecutionProvider", "MIGraphXExecutionProvider"),
    "mps": ("CoreMLExecutionProvider",),
    "mkldnn": ("DnnlExecutionProvider",),
    "cpp": (CPU,),
    "python": (CPU,),
    "torch": (CPU,),
    "cpu": (CPU,),
}
#: What "auto" tries.
ORDER = ("cuda", "rocm", "mps", "cpu")

_INSTEAD = "in place of the installed one, "
_INSTALL = {
    "CUDAExecutionProvider": f"{_INSTEAD}pip install onnxruntime-gpu",
    "ROCMExecutionProvider": f"{_INSTEAD}pip install onnxruntime-migraphx",
    "MIGraphXExecutionProvider": f"{_INSTEAD}pip install onnxruntime-migraphx",
    "CoreMLExecutionProvider": "pip install onnxruntime has it on macOS",
    "DnnlExecutionProvider": "it takes a build of ONNX Runtime with --use_dnnl",
    CPU: "pip install onnxruntime has it",
}


def resolve_ort_providers(backend: str | None, available: Iterable[str] | None = None) -> list[str]:
    """Return the providers that a session is made with, the CPU's last.

    Parameters
    ----------
    backend : {"auto", "cpu", "cuda", "rocm", "mps"} or None
        ``"cuda"`` is CUDAExecutionProvider; ``"rocm"`` ROCMExecutionProvider, else its successor
        MIGraphXExecutionProvider; ``"mps"`` CoreMLExecutionProvider. ``"auto"`` takes the first
        of these that is there, else the CPU's; so does None.
    available : iterable of str, optional
        The providers to choose from; by default those of the installed ONNX Runtime.

    Returns
    -------
    list of str
        What `onnxruntime.InferenceSession` takes as `providers`.

    Raises
    ------
    BackendError
        If there is no such backend; the message gives the nearest one.
    BackendUnavailableError
        A BackendError: if none of the backend's providers is available, or ONNX Runtime is not
        installed and `available` not given.
    TypeError
        If `backend` is no string or `available` is one.

    Notes
    -----
    That a provider is available means that ONNX Runtime was built with it. Whether it works on
    this machine shows when a session is made: see `create_session`.

    Examples
    --------
    >>> from tensor_ops_devices import resolve_ort_providers
    >>> both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    >>> resolve_ort_providers("auto", both)
    ['CUDAExecutionProvider', 'CPUExecutionProvider']
    >>> resolve_ort_providers("cpu", both)
    ['CPUExecutionProvider']
    """
    backend = check_backend(backend, DEVICE_BACKENDS)
    here = available_providers(available)
    names = ORDER if backend == AUTO else (backend,)
    choice = choose_provider(names, here)
    if choice.backend is None:
        raise BackendUnavailableError(
            f"backend {backend!r} is unavailable: {choice.steps[-1].reason}", backend
        )
    return ordered(choice.backend, here)


def available_providers(given: Iterable[str] | None = None) -> list[str]:
    """Return the providers to choose from: those that are given, else those of ONNX Runtime."""
    if isinstance(given, str):
        raise TypeError(f"available must be several names, got the string {given!r}")
    return list(onnxruntime().get_available_providers() if given is None else given)


def choose_provider(backends: Iterable[str], available: Collection[str]) -> Choice:
    """Return the first backend that has an available provider, and why others have none."""
    return choose(backends, lambda name: _why_not(name, available))


def ordered(backend: str, available: Collection[str]) -> list[str]:
    """Return the provider of a backend that has one, and the CPU's."""
    first = next(each for each in PROVIDERS[backend] if each in available)
    return list(dict.fromkeys([first, CPU]))


def onnxruntime() -> ModuleType:
    """Return ONNX Runtime, or raise BackendError if it is not installed or cannot be imported."""
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise BackendUnavailableError(
            f"ONNX Runtime is not installed ({error}); install it with: pip install onnxruntime",
            "onnxruntime",
        ) from error
    except Exception as error:  # whatever a broken installation does
        raise BackendUnavailableError(
            f"importing onnxruntime failed: {type(error).__name__}: {error}; install it anew: "
            "pip install --force-reinstall onnxruntime",
            "onnxruntime",
        ) from error
    if not hasattr(onnxruntime, "InferenceSession"):
        # It stays behind where one of two distributions of the module was uninstalled.
        raise BackendError(
            f"onnxruntime at {list(getattr(onnxruntime, '__path__', []))} is an empty folder; "
            "install it anew: pip install --force-reinstall onnxruntime"
        )
    module: ModuleType = onnxruntime
    return module


def _why_not(backend: str, available: Collection[str]) -> str | None:
    """Return why a backend has no provider, None if it has one."""
    providers = PROVIDERS.get(backend)
    if providers is None:
        return f"ONNX Runtime has no execution provider for {backend}"
    if any(each in available for each in providers):
        return None
    there = ", ".join(available) or "none"
    return (
        f"ONNX Runtime was built without {' and '.join(providers)}, it has {there}; "
        f"{_INSTALL[providers[-1]]}"
    )

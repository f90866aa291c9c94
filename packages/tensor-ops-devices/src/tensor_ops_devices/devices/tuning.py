"""PyTorch's settings for a device, applied, shown and taken back.

>>> import tensor_ops_devices
>>> with tensor_ops_devices.configure_torch_backend("cpu", "cpu", verbose=False) as tuning:
...     tuning.changes
{}
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from tensor_ops.extension import AUTO, machine
from tensor_ops_devices.devices.device import build_name, check_device
from tensor_ops_devices.pytorch import torch

__all__ = ["Change", "Tuning", "configure_torch_backend"]

# Reading a setting through PyTorch's older interface raises where it was made through the newer.
MIXED = "mixed"
# A matrix product is in TF32 on ROCm only if this is 1.
_ROCM_TF32 = "HIPBLASLT_ALLOW_TF32"


class Change(NamedTuple):
    """A setting before and after."""

    before: Any
    after: Any


class Tuning:
    """What `configure_torch_backend` changed; as a context manager it takes that back at the end.

    Attributes
    ----------
    backend : str
        As it was asked for.
    device : torch.device
    changes : dict of str to Change
        The settings that are no longer what they were, by their names in PyTorch.
    """

    def __init__(self, backend: str, device: torch.device, before: dict[str, Any]) -> None:
        self.backend = backend
        self.device = device
        self._before = before
        after = _read()
        self.changes = {
            name: Change(before[name], after[name])
            for name in before
            if before[name] != after[name]
        }

    def __repr__(self) -> str:
        changes = ", ".join(f"{name}: {a} -> {b}" for name, (a, b) in self.changes.items())
        return f"<Tuning of {self.device} for {self.backend!r}: {changes or 'nothing changed'}>"

    def restore(self) -> None:
        """Give every setting in `changes` its value of before; a second time does nothing."""
        if self.changes:
            # All of them, in order: writing through the older interface changes the newer's.
            for name, setting in _settings().items():
                setting.write(self._before[name])
        self.changes = {}

    def __enter__(self) -> Tuning:
        return self

    def __exit__(self, *exception: object) -> None:
        self.restore()


def configure_torch_backend(
    backend: str | None, device: torch.device | str, verbose: bool = True
) -> Tuning:
    """Set PyTorch up for a device, and say what was changed.

    On CUDA: ``cudnn.benchmark`` on, TF32 allowed in matrix products and convolutions, float32
    matrix products in precision ``"high"``. On ROCm: TF32 not allowed and precision ``"high"``,
    unless the environment variable ``HIPBLASLT_ALLOW_TF32`` is 1, with which ``"high"`` would
    bring in TF32. On Apple's GPUs (MPS): precision ``"high"``. On the CPU: nothing.

    Parameters
    ----------
    backend : {"auto", "cpu", "cuda", "rocm", "mps"} or None
        None is ``"auto"``.
    device : torch.device or str
        What `resolve_torch_device` returned for it.
    verbose : bool, optional
        Whether to print versions, the device, its memory and the settings.

    Returns
    -------
    Tuning
        Its `changes` name every setting that changed, with both values; `restore`, or the end of
        a ``with`` block of it, takes them back.

    Raises
    ------
    BackendError
        If there is no such backend, the device is of another one or cannot be used, or PyTorch is
        missing. Nothing is changed then.

    Examples
    --------
    >>> import tensor_ops_devices
    >>> device = tensor_ops_devices.resolve_torch_device("cpu")
    >>> tensor_ops_devices.configure_torch_backend("cpu", device, verbose=False)
    <Tuning of cpu for 'cpu': nothing changed>
    """
    found = check_device(backend, device)
    before = _read()
    if found.type == "cuda" and not torch.version.hip:
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    elif found.type == "cuda":
        torch.backends.cudnn.allow_tf32 = False
        for part in _convolutions():
            part.fp32_precision = "ieee"
        allowed = os.environ.get(_ROCM_TF32) == "1"
        torch.set_float32_matmul_precision("highest" if allowed else "high")
    elif found.type == "mps":
        torch.set_float32_matmul_precision("high")
    tuning = Tuning(backend or AUTO, found, before)
    if verbose:
        print(_diagnostics(tuning))
    return tuning


class _Setting(NamedTuple):
    read: Callable[[], Any]
    write: Callable[[Any], None]


def _attribute(owner: Any, name: str) -> _Setting:
    return _Setting(lambda: getattr(owner, name), lambda value: setattr(owner, name, value))


def _convolutions() -> list[Any]:
    """Return the parts of cuDNN with a precision of their own, which PyTorch 2.9 brought."""
    parts = (getattr(torch.backends.cudnn, name, None) for name in ("conv", "rnn"))
    return [part for part in parts if hasattr(part, "fp32_precision")]


def _older() -> dict[str, _Setting]:
    """Return the settings through the interface that every version has; they come first.

    What was set through the newer one alone reads as MIXED here. Then the default stands for the
    older, and what the newer has is given back after it.
    """
    cudnn = torch.backends.cudnn
    return {
        "torch.backends.cudnn.benchmark": _attribute(cudnn, "benchmark"),
        "torch.get_float32_matmul_precision()": _Setting(
            torch.get_float32_matmul_precision,
            lambda value: torch.set_float32_matmul_precision(
                "highest" if value == MIXED else value
            ),
        ),
        "torch.backends.cuda.matmul.allow_tf32": _Setting(
            lambda: torch.backends.cuda.matmul.allow_tf32,
            lambda value: None,  # the same switch as the precision, which is given back before
        ),
        "torch.backends.cudnn.allow_tf32": _Setting(
            lambda: cudnn.allow_tf32,
            lambda value: setattr(cudnn, "allow_tf32", True if value == MIXED else value),
        ),
    }


def _newer() -> dict[str, _Setting]:
    """Return the settings through the interface that PyTorch 2.9 brought."""
    paths = ("cuda.matmul", "mkldnn.matmul", "cudnn.conv", "cudnn.rnn")
    found = {}
    for path in paths:
        owner: Any = torch.backends
        for name in path.split("."):
            owner = getattr(owner, name, None)
        if hasattr(owner, "fp32_precision"):
            name = f"torch.backends.{path}.fp32_precision"
            found[name] = _attribute(owner, "fp32_precision")
    return found


@cache
def _settings() -> dict[str, _Setting]:
    return _older() | _newer()


def _read() -> dict[str, Any]:
    values = {}
    for name, setting in _settings().items():
        try:
            values[name] = setting.read()
        except RuntimeError:
            values[name] = MIXED
    return values


def _diagnostics(tuning: Tuning) -> str:
    device = tuning.device
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    rows = [
        ("backend", f"{tuning.backend} -> {device}"),
        ("PyTorch", f"{torch.__version__}, built for {build_name()}, Python {python}"),
        *_DESCRIBED[device.type](device),
    ]
    values = _read()
    for name in _older():
        changed = tuning.changes.get(name)
        note = f" (was {changed.before})" if changed else ""
        rows.append((name.removeprefix("torch."), f"{values[name]}{note}"))
    width = max(len(key) for key, _ in rows)
    return "\n".join(f"{key:{width}}  {value}" for key, value in rows)


def _cuda_rows(device: torch.device) -> list[tuple[str, str]]:
    facts = torch.cuda.get_device_properties(device)
    free, total = torch.cuda.mem_get_info(device)
    allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    library = "MIOpen" if torch.version.hip else "cuDNN"
    return [
        (library, str(torch.backends.cudnn.version())),
        ("device", f"{facts.name}, compute capability {facts.major}.{facts.minor}"),
        ("devices", str(torch.cuda.device_count())),
        (
            "memory",
            f"{_mib(free)} of {_mib(total)} free; PyTorch has {_mib(allocated)} in tensors and "
            f"{_mib(reserved)} reserved",
        ),
    ]


def _mps_rows(device: torch.device) -> list[tuple[str, str]]:
    used, driver = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
    limit = torch.mps.recommended_max_memory()
    return [
        ("device", f"Apple GPU, macOS {platform.mac_ver()[0]}"),
        (
            "memory",
            f"{_mib(used)} in tensors, {_mib(driver)} with the driver's, {_mib(limit)} at most",
        ),
    ]


def _cpu_rows(device: torch.device) -> list[tuple[str, str]]:
    facts = machine.facts()
    level = torch.backends.cpu.get_cpu_capability()
    total = machine.total_memory()
    memory = "unknown" if total is None else f"{_mib(total)} in the machine"
    return [
        ("device", f"{facts['cpu'] or facts['architecture']}, kernels for {level}"),
        ("threads", f"{torch.get_num_threads()} of {facts['usable_cpus']} usable CPUs"),
        ("memory", f"{memory}{_resident()}"),
    ]


def _resident() -> str:
    """Return the memory that this process has taken at most, where the system tells."""
    try:
        import resource
    except ImportError:
        return ""
    unit = 1 if platform.system() == "Darwin" else 1024
    return f"; this process took {_mib(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)}"


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


_DESCRIBED = {"cuda": _cuda_rows, "mps": _mps_rows, "cpu": _cpu_rows}

"""The devices, and the one that computes host arrays."""

import os
from dataclasses import asdict, dataclass
from typing import Any

from tensor_ops_cuda import _native
from tensor_ops_cuda._table import Table

__all__ = ["CudaInfo", "Device", "chosen", "devices", "get_cuda_info", "program_memory_limit"]


@dataclass(frozen=True)
class Device:
    """A CUDA device.

    Attributes
    ----------
    index : int
        As ``TENSOR_OPS_CUDA_DEVICE`` and ``cuda:0`` take it.
    name : str
    compute_capability : int
        90 for 9.0.
    compute_units : int
        Multiprocessors.
    max_memory, max_shared_memory : int
        Bytes; the latter is what a block can ask for.
    has_clusters : bool
        Whether blocks can share their memory.
    reason : str or None
        Why it cannot be used; None when it can.
    """

    index: int
    name: str
    compute_capability: int
    compute_units: int
    max_memory: int
    max_shared_memory: int
    has_clusters: bool
    reason: str | None

    def __str__(self) -> str:
        major, minor = divmod(self.compute_capability, 10)
        memory = f"{self.max_memory / 2**30:.1f} GiB"
        unusable = "" if self.reason is None else f"; unusable: {self.reason}"
        return (
            f"{self.index}: {self.name} (compute capability {major}.{minor}, "
            f"{self.compute_units} multiprocessors, {memory}{unusable})"
        )


class CudaInfo(Table):
    """Result of `get_cuda_info`: a dict that prints as a table."""


def devices() -> list[Device]:
    """Return every device that the driver sees, usable or not.

    Returns
    -------
    list of Device

    Raises
    ------
    RuntimeError
        If there is none; the message says what to do.

    Examples
    --------
    >>> import tensor_ops_cuda
    >>> for device in tensor_ops_cuda.devices():
    ...     assert device.compute_units >= 1
    """
    return [Device(**facts) for facts in _native.devices()]


def chosen() -> tuple[Device | None, str | None]:
    """Return the device that computes host arrays, or why there is none."""
    try:
        device = devices()[_native.host_device()]
    except (RuntimeError, ValueError) as error:
        return None, str(error)
    return (device, None) if device.reason is None else (None, f"{device}")


def get_cuda_info() -> CudaInfo:
    """Describe the driver, the runtime, every device, and which one is used.

    Returns
    -------
    CudaInfo
        A dict with ``available``, ``reason`` (why none can be used), ``device`` (the index of the
        one that computes host arrays), ``chosen_by`` (the value of ``TENSOR_OPS_CUDA_DEVICE``),
        ``driver`` (the CUDA version that the driver supports, None without a driver), ``runtime``
        (the CUDA version that this package was built with), ``architectures`` (what it has code
        for) and ``devices``: a list of dicts with the attributes of `Device`. It prints as a table.

    Examples
    --------
    >>> import tensor_ops_cuda
    >>> tensor_ops_cuda.get_cuda_info()["available"]
    True
    """
    device, reason = chosen()
    try:
        found = devices()
    except RuntimeError:
        found = []
    return CudaInfo(
        available=device is not None,
        reason=reason,
        device=device and device.index,
        chosen_by=os.environ.get(_native.device_variable) or None,
        driver=_version(_native.driver_version()),
        runtime=_version(_native.runtime_version()),
        architectures=_native.architectures.split(),
        devices=[_Facts(asdict(each), text=str(each)) for each in found],
    )


def program_memory_limit() -> int:
    """Return the bytes of the device's memory that nobody has taken.

    Raises
    ------
    RuntimeError
        If there is no device that can be used.

    Examples
    --------
    >>> import tensor_ops_cuda
    >>> 0 <= tensor_ops_cuda.program_memory_limit() <= tensor_ops_cuda.info()["max_memory"]
    True
    """
    return _native.program_memory_limit()


class _Facts(dict[str, Any]):
    """A dict that prints as its device."""

    def __init__(self, facts: dict[str, Any], text: str) -> None:
        super().__init__(facts)
        self._text = text

    def __str__(self) -> str:
        return self._text


def _version(number: int) -> str | None:
    return f"{number // 1000}.{number % 1000 // 10}" if number else None

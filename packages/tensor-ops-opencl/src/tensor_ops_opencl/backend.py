"""The contract between ``tensor_ops`` and a backend, as this package keeps it."""

import os
from typing import Any

from tensor_ops_opencl import compiler, discovery, drivers, runtime
from tensor_ops_opencl.arguments import DTYPES
from tensor_ops_opencl.device import Device
from tensor_ops_opencl.errors import DeviceError
from tensor_ops_opencl.ops import OPS
from tensor_ops_opencl.table import OpenCLInfo

__all__ = [
    "API_VERSION",
    "CAPABILITIES",
    "__version__",
    "driver_version",
    "get_opencl_info",
    "info",
    "probe",
    "supports",
]

__version__ = "0.1.0"

#: The version of the contract that this module keeps.
API_VERSION = 1

#: What this backend can do, in the words of the contract.
CAPABILITIES = {"copies_host_arrays": True, "devices": ["gpu", "cpu", "accelerator"]}


def probe() -> dict[str, Any]:
    """Say whether there is a device to run on. Makes no context.

    Returns
    -------
    dict
        ``available`` (bool), ``reason`` (str, or None when available), ``devices`` (list of str):
        ``"cpu"`` for host arrays, then those of OpenCL; ``kind`` (str or None) of the device that
        host arrays are computed on: ``"gpu"``, ``"accelerator"``, ``"cpu"`` or ``"custom"``;
        ``wrong_setting`` (str or None): the reason again where ``TENSOR_OPS_OPENCL_DEVICE`` fits
        no device or several.

    Examples
    --------
    >>> import tensor_ops_opencl
    >>> found = tensor_ops_opencl.probe()
    >>> found["available"] is (found["reason"] is None)
    True
    """
    device, problem = _device()
    is_wrong_setting = isinstance(problem, DeviceError) and problem.is_wrong_setting
    return {
        "available": device is not None,
        "reason": _text(problem),
        "devices": ["cpu", f"opencl:{device.index}"] if device else [],
        "kind": device and device.kind,
        "wrong_setting": _text(problem) if is_wrong_setting else None,
    }


def info() -> dict[str, Any]:
    """Describe the backend and the device that host arrays are computed on.

    Returns
    -------
    dict
        ``name``, ``display_name``, ``available``, ``reason``, ``version``, ``device_name``,
        ``device_count`` (of all platforms, without those whose compiler compiles nothing),
        ``compute_capability`` (0: it is CUDA's), ``compute_units``, ``max_memory`` and
        ``max_shared_memory`` (bytes), ``dtypes`` and ``ops``. Without a device its numbers are 0.
    """
    device, problem = _device()
    found = discovery.devices() if device else []
    return {
        "name": "opencl",
        "display_name": "OpenCL",
        "available": device is not None,
        "reason": _text(problem),
        "version": __version__,
        "device_name": device and str(device),
        "device_count": sum(compiler.problem_with(each) is None for each in found),
        "compute_capability": 0,
        "compute_units": device.compute_units if device else 0,
        "max_memory": device.max_memory if device else 0,
        "max_shared_memory": device.max_shared_memory if device else 0,
        "dtypes": [name for name in DTYPES if device is None or _lacks(device, name) is None],
        "ops": list(OPS),
    }


def driver_version() -> str | None:
    """Return the version of the driver that host arrays are computed with, None without a device.

    Examples
    --------
    >>> import tensor_ops_opencl
    >>> assert tensor_ops_opencl.driver_version()
    """
    device, _ = _device()
    return None if device is None else f"{device.version}, {device.driver}"


def supports(op: str, dtype: str, device: str) -> str | None:
    """Say why the backend cannot run an op.

    Parameters
    ----------
    op : str
        Name of an op, such as ``"rms_norm"``.
    dtype : str
        Name of a dtype, such as ``"bfloat16"``.
    device : str
        Where the arrays are: ``"cpu"``, or ``"opencl"`` with or without an index.

    Returns
    -------
    str or None
        The reason, or None when it can.
    """
    if op not in OPS:
        return f"tensor_ops_opencl has no op {op!r}; it has {', '.join(OPS)}"
    if dtype not in DTYPES:
        return f"{op} supports {', '.join(DTYPES)}, not {dtype}"
    if device != "cpu" and device.partition(":")[0] != "opencl":
        return f"tensor_ops_opencl runs on arrays of cpu and opencl, not of {device}"
    found, problem = _device()
    return _text(problem) if found is None else _lacks(found, dtype)


def get_opencl_info() -> OpenCLInfo:
    """Describe every platform and device, and which one is used.

    Returns
    -------
    OpenCLInfo
        A dict with ``available``, ``reason`` (why none can be used), ``device`` (the one that host
        arrays are computed on), ``chosen_by`` (the value of ``TENSOR_OPS_OPENCL_DEVICE``),
        ``pyopencl`` (its version), ``broken_drivers`` and ``platforms``: a list of dicts with
        ``index``, ``name``, ``vendor``, ``version`` and ``devices``, whose dicts have the
        attributes of `Device`. It prints as a table.

    Examples
    --------
    >>> import tensor_ops_opencl
    >>> sorted(tensor_ops_opencl.get_opencl_info())[:3]
    ['available', 'broken_drivers', 'chosen_by']
    """
    device, problem = _device()
    try:
        version = runtime.opencl().VERSION_TEXT
        listed = _platforms()
    except DeviceError:
        version, listed = None, []
    return OpenCLInfo(
        available=device is not None,
        reason=_text(problem),
        device=device and f"{device.index} = {device}",
        chosen_by=os.environ.get(discovery.VARIABLE) or None,
        pyopencl=version,
        # To see whether a driver loads is to load it.
        broken_drivers=[] if runtime.is_inherited() else drivers.broken(),
        platforms=listed,
    )


def _device() -> tuple[Device | None, Exception | None]:
    """Return the device to use, or why there is none."""
    try:
        return discovery.chosen(), None
    except Exception as error:  # whatever a driver does, asking for it must not fail
        return None, error


def _text(problem: Exception | None) -> str | None:
    return None if problem is None else str(problem) or type(problem).__name__


def _lacks(device: Device, dtype: str) -> str | None:
    if dtype != "float64" or device.has_float64:
        return None
    return f"{device} has no float64"


def _platforms() -> list[dict[str, Any]]:
    found = discovery.devices()
    return [
        {
            "index": str(number),
            "name": platform.name.strip(),
            "vendor": platform.vendor.strip(),
            "version": platform.version.strip(),
            "devices": [
                device.facts() for device in found if device.index.partition(":")[0] == str(number)
            ],
        }
        for number, platform in enumerate(runtime.platforms())
    ]

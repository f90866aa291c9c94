"""The contract between ``tensor_ops`` and a backend, as this package keeps it."""

from typing import Any

from tensor_ops_cuda import _native
from tensor_ops_cuda._devices import chosen, devices, get_cuda_info

__all__ = [
    "API_VERSION",
    "CAPABILITIES",
    "configuration",
    "driver_version",
    "info",
    "probe",
    "program_note",
    "supports",
]

#: The version of the contract that this module keeps.
API_VERSION = 1

#: What this backend can do, in the words of the contract.
CAPABILITIES = {"copies_host_arrays": True, "devices": ["gpu"], "runs_programs": True}


def program_note() -> str:
    """Return what `explain` of a kernel says of the executor of decode programs.

    Examples
    --------
    >>> import tensor_ops_cuda
    >>> tensor_ops_cuda.program_note()[:37]
    'no GPU has run decode programs yet, o'
    """
    return (
        "no GPU has run decode programs yet, only an emulated device; nor is it known which "
        "products are faster, those with use_cutlass_kernel or those without"
    )


def probe() -> dict[str, Any]:
    """Say whether there is a device to run on. Makes no context.

    Returns
    -------
    dict
        ``available`` (bool), ``reason`` (str, or None when available), ``devices`` (list of str):
        ``"cpu"`` for host arrays, then those of CUDA; ``kind``, that of the device that host
        arrays are computed on: ``"gpu"``, or None when unavailable.

    Examples
    --------
    >>> import tensor_ops_cuda
    >>> found = tensor_ops_cuda.probe()
    >>> found["available"] is (found["reason"] is None)
    True
    """
    device, reason = chosen()
    if device is None:
        return {"available": False, "reason": reason, "devices": [], "kind": None}
    usable = [f"cuda:{each.index}" for each in devices() if each.reason is None]
    return {"available": True, "reason": None, "devices": ["cpu", *usable], "kind": "gpu"}


def info() -> dict[str, Any]:
    """Describe the backend and the device that host arrays are computed on.

    Returns
    -------
    dict
        ``name``, ``display_name``, ``available``, ``reason``, ``version``, ``device_name``,
        ``device_count``, ``compute_capability`` (int, 90 for 9.0), ``compute_units``
        (multiprocessors), ``max_memory`` and ``max_shared_memory`` (bytes; the latter of a block),
        ``dtypes`` and ``ops``. Without a device, its numbers are 0.

    Examples
    --------
    >>> import tensor_ops_cuda
    >>> tensor_ops_cuda.info()["name"]
    'cuda'
    """
    device, reason = chosen()
    return {
        "name": "cuda",
        "display_name": "CUDA",
        "available": device is not None,
        "reason": reason,
        "version": _native.__version__,
        "device_name": device and device.name,
        "device_count": len(devices()) if device else 0,
        "compute_capability": device.compute_capability if device else 0,
        "compute_units": device.compute_units if device else 0,
        "max_memory": device.max_memory if device else 0,
        "max_shared_memory": device.max_shared_memory if device else 0,
        "dtypes": list(_native.dtypes),
        "ops": list(_native.ops),
    }


def configuration() -> str:
    """Say what was compiled, which options of the build choose.

    Returns
    -------
    str
        Words ``key=value`` with spaces between them: ``architectures``, what there is machine code
        (``sm_90``) and PTX (``compute_120``) for.

    Examples
    --------
    >>> import tensor_ops_cuda
    >>> "architectures" in dict(word.split("=") for word in tensor_ops_cuda.configuration().split())
    True
    """
    return _native.configuration()


def driver_version() -> str | None:
    """Return the CUDA version that the driver supports, None without a driver.

    Examples
    --------
    >>> import tensor_ops_cuda
    >>> assert tensor_ops_cuda.driver_version()
    """
    version: str | None = get_cuda_info()["driver"]
    return version


def supports(op: str, dtype: str, device: str) -> str | None:
    """Say why the backend cannot run an op.

    Parameters
    ----------
    op : str
        Name of an op, such as ``"rms_norm"``.
    dtype : str
        Name of a dtype, such as ``"bfloat16"``.
    device : str
        Where the arrays are: ``"cpu"``, or ``"cuda"`` with or without an index.

    Returns
    -------
    str or None
        The reason, or None when it can.

    Examples
    --------
    >>> import tensor_ops_cuda
    >>> tensor_ops_cuda.supports("silu", "int8", "cuda:0")
    'silu supports float32, float16, bfloat16, float64, not int8'
    """
    if op not in _native.ops:
        return f"tensor_ops_cuda has no op {op!r}; it has {', '.join(_native.ops)}"
    if dtype not in _native.dtypes:
        return f"{op} supports {', '.join(_native.dtypes)}, not {dtype}"
    if device in {"cpu", "cuda"}:
        return chosen()[1]
    kind, _, index = device.partition(":")
    if kind != "cuda" or not index.isdigit():
        return f"tensor_ops_cuda runs on arrays of cpu and cuda, not of {device}"
    return _lacks(int(index))


def _lacks(index: int) -> str | None:
    """Return why a device cannot be used."""
    try:
        found = devices()
    except RuntimeError as error:
        return str(error)
    if index >= len(found):
        return f"there is no device cuda:{index}; the last one is cuda:{len(found) - 1}"
    return found[index].reason

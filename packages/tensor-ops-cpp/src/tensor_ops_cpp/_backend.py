"""The contract between ``tensor_ops`` and a backend, as this package keeps it."""

from typing import Any

from tensor_ops_cpp import _native

__all__ = ["API_VERSION", "CAPABILITIES", "configuration", "info", "probe", "supports"]

#: The version of the contract that this module keeps.
API_VERSION = 1

#: What this backend can do, in the words of the contract: the ops also take host arrays whose type
#: has DLPack's C exchange API, as PyTorch's tensors do, and return arrays of the same kind.
#: Whole programs of a model's decode step run too, unless it was built without.
CAPABILITIES = {
    "exchanges_arrays": True,
    "devices": ["cpu"],
    "runs_programs": _native.runs_programs,
}


def probe() -> dict[str, Any]:
    """Say whether this CPU can run the ops.

    Returns
    -------
    dict
        ``available`` (bool), ``reason`` (str, or None when available), ``devices`` (list of str),
        ``kind`` (of the device: ``"cpu"``).
    """
    reason = _native.unavailable_reason()
    devices = [] if reason else ["cpu"]
    return {"available": reason is None, "reason": reason, "devices": devices, "kind": "cpu"}


def info() -> dict[str, Any]:
    """Describe the backend and its device; 0 where a number has no meaning for a CPU.

    Returns
    -------
    dict
        ``name``, ``display_name``, ``available``, ``reason``, ``version``, ``device_name``,
        ``device_count``, ``compute_capability``, ``compute_units`` (threads the process may use),
        ``max_memory`` (bytes of RAM the process may use), ``max_shared_memory``, ``dtypes`` and
        ``ops``.
    """
    found = probe()
    return {
        "name": "cpp",
        "display_name": "C++ (SIMD, threads)",
        "available": found["available"],
        "reason": found["reason"],
        "version": _native.__version__,
        "device_name": _native.cpu_brand(),
        "device_count": len(found["devices"]),
        "compute_capability": 0,
        "compute_units": _native.allowed_threads(),
        "max_memory": _native.allowed_memory(),
        "max_shared_memory": 0,
        "dtypes": list(_native.dtypes),
        "ops": list(_native.ops),
    }


def configuration() -> str:
    """Say what was compiled, which options of the build choose.

    Returns
    -------
    str
        Words ``key=value`` with spaces between them: ``levels``, the instruction-set levels, and
        ``decode``, whether decode programs run.

    Examples
    --------
    >>> import tensor_ops_cpp
    >>> dict(word.split("=") for word in tensor_ops_cpp.configuration().split()).keys()
    dict_keys(['levels', 'decode'])
    """
    return _native.configuration()


def supports(op: str, dtype: str, device: str) -> str | None:
    """Say why the backend cannot run an op.

    Parameters
    ----------
    op : str
        Name of an op, such as ``"rms_norm"``.
    dtype : str
        Name of a dtype, such as ``"bfloat16"``.
    device : str
        Name of a device; only ``"cpu"`` can be supported.

    Returns
    -------
    str or None
        The reason, or None when it can.
    """
    if (reason := _native.unavailable_reason()) is not None:
        return reason
    if op not in _native.ops:
        return f"tensor_ops_cpp has no op {op!r}; it has {', '.join(_native.ops)}"
    if dtype not in _native.dtypes:
        return f"{op} supports {', '.join(_native.dtypes)}, not {dtype}"
    if device != "cpu":
        return f"tensor_ops_cpp runs on cpu, not {device}"
    return None

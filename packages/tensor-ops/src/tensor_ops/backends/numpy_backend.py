"""The ``python`` backend: every op's own NumPy body, as a module that keeps the contract."""

from typing import Any

import numpy as np

from tensor_ops.backends.contract import API_VERSION, INFO_KEYS, NUMBER_KEYS
from tensor_ops.op import OPS
from tensor_ops.op.arguments import DTYPES

__all__ = ["API_VERSION", "CAPABILITIES", "info", "probe", "supports"]

# Programs are made by tensor_ops_decode, which has the executor of this backend too.
CAPABILITIES = {"devices": ["cpu"], "runs_programs": True}


def probe() -> dict[str, Any]:
    """Return that this backend is available, as it always is."""
    return {"available": True, "reason": None, "devices": ["cpu"], "kind": "cpu"}


def info() -> dict[str, Any]:
    """Return the documented keys of ``tensor_ops.get_backend_info("python")``."""
    return (
        dict.fromkeys(INFO_KEYS)
        | dict.fromkeys(NUMBER_KEYS, 0)
        | {
            "name": "python",
            "display_name": "Python (NumPy)",
            "available": True,
            "version": np.__version__,
            "device_name": "CPU",
            "device_count": 1,
            "compute_units": 1,
            "dtypes": list(DTYPES),
            "ops": list(OPS),
        }
    )


def supports(op: str, dtype: str, device: str) -> str | None:
    """Return why an op cannot run for a dtype on a device, None if it can."""
    if op not in OPS:
        return f"it has no {op}"
    if dtype not in DTYPES:
        return f"it has no {dtype}; it has {', '.join(DTYPES)}"
    return None if device == "cpu" else f"it runs on the CPU, not on {device}"


def __getattr__(name: str) -> Any:
    op = OPS.get(name)
    if op is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return op.numpy

"""LLM tensor operations for NumPy and pyopencl arrays, on any OpenCL device.

Every op (``tensor_ops_opencl.ops`` maps their names to them) takes NumPy arrays and returns NumPy
arrays, or takes and returns ``pyopencl.array.Array``, of float32, float16, bfloat16 (``ml_dtypes``)
or float64; see the docstrings of the ops. The module is also the ``opencl`` backend of
``tensor_ops``: ``API_VERSION``, ``probe``, ``info`` and ``supports`` are that contract.

NumPy arrays are computed on the strongest device, or on the one that the environment variable
``TENSOR_OPS_OPENCL_DEVICE`` names; pyopencl arrays on that of their queue. Importing this module
looks for nothing and makes no context.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensor_ops_opencl.backend import (
    API_VERSION,
    CAPABILITIES,
    __version__,
    driver_version,
    get_opencl_info,
    info,
    probe,
    supports,
)
from tensor_ops_opencl.device import Device
from tensor_ops_opencl.discovery import devices
from tensor_ops_opencl.errors import BuildError, DeviceError
from tensor_ops_opencl.ops import OPS
from tensor_ops_opencl.results import pool_info, set_pool_limit, trim_pool
from tensor_ops_opencl.table import OpenCLInfo

__all__ = [
    "API_VERSION",
    "CAPABILITIES",
    "BuildError",
    "Device",
    "DeviceError",
    "OpenCLInfo",
    "__version__",
    "devices",
    "driver_version",
    "get_opencl_info",
    "info",
    "ops",
    "pool_info",
    "probe",
    "set_pool_limit",
    "supports",
    "trim_pool",
]

#: The ops by name; each is also an attribute of this module.
ops: dict[str, Callable[..., Any]] = dict(OPS)
globals().update(ops)
__all__ += list(ops)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

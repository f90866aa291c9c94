"""LLM tensor operations for NumPy and device arrays, on NVIDIA GPUs.

Every op (``tensor_ops_cuda.ops`` maps their names to them) takes NumPy arrays and returns NumPy
arrays, or takes arrays on a CUDA device, through DLPack or ``__cuda_array_interface__``, and
returns arrays of the caller's own kind, of float32, float16, bfloat16 or float64; see the
docstrings of the ops. The module is also the ``cuda`` backend of ``tensor_ops``: ``API_VERSION``,
``probe``, ``info`` and ``supports`` are that contract.

NumPy arrays are computed on the current device, or on the one whose index the environment variable
``TENSOR_OPS_CUDA_DEVICE`` gives; device arrays where they are, on the caller's current stream and
without waiting. Importing this module makes no context and works without a driver.

Whole steps of language models run too, as decode programs: `compile_program` makes one ready.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensor_ops_cuda import _native
from tensor_ops_cuda._backend import (
    API_VERSION,
    CAPABILITIES,
    configuration,
    driver_version,
    info,
    probe,
    program_note,
    supports,
)
from tensor_ops_cuda._decode import compile_program, program_memory, supports_program
from tensor_ops_cuda._devices import (
    CudaInfo,
    Device,
    devices,
    get_cuda_info,
    program_memory_limit,
)
from tensor_ops_cuda._native import DeviceArray, to_device
from tensor_ops_cuda._pool import PoolInfo, pool_info, set_pool_limit, trim_pool

__all__ = [
    "API_VERSION",
    "CAPABILITIES",
    "CudaInfo",
    "Device",
    "DeviceArray",
    "PoolInfo",
    "__version__",
    "compile_program",
    "configuration",
    "devices",
    "driver_version",
    "get_cuda_info",
    "info",
    "ops",
    "pool_info",
    "probe",
    "program_memory",
    "program_memory_limit",
    "program_note",
    "set_pool_limit",
    "supports",
    "supports_program",
    "to_device",
    "trim_pool",
]

__version__: str = _native.__version__

#: The ops by name; each is also an attribute of this module.
ops: dict[str, Callable[..., Any]] = dict(_native.ops)
globals().update(ops)
__all__ += list(ops)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

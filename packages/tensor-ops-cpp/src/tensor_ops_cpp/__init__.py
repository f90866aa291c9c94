"""LLM tensor operations for NumPy arrays, in C++ with run-time SIMD dispatch.

Every op (``tensor_ops_cpp.ops`` maps their names to them) takes and returns NumPy arrays of
float32, float16, bfloat16 (``ml_dtypes``) or float64; see the docstrings of the ops. The module is
also the ``cpp`` backend of ``tensor_ops``: ``API_VERSION``, ``probe``, ``info`` and ``supports``
are that contract.

The instruction-set level is chosen when the module is imported; the environment variable
``TENSOR_OPS_CPP_ISA`` caps it. Memory of large results is used again, see `pool_info`.
"""

import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensor_ops_cpp import _native
from tensor_ops_cpp._backend import (
    API_VERSION,
    CAPABILITIES,
    configuration,
    info,
    probe,
    supports,
)
from tensor_ops_cpp._decode import compile_program, program_memory, supports_program
from tensor_ops_cpp._development import (
    get_cmake_dir,
    get_include,
    get_library_dir,
    get_pkgconfig_dir,
)
from tensor_ops_cpp._optimization import (
    OptimizationInfo,
    get_num_threads,
    get_optimization_info,
    set_num_threads,
)
from tensor_ops_cpp._packing import (
    has_bfloat16_products,
    packed_checksum,
    packed_layout,
    program_note,
)
from tensor_ops_cpp._pool import PoolInfo, pool_info, set_pool_limit, trim_pool

__all__ = [
    "API_VERSION",
    "CAPABILITIES",
    "OptimizationInfo",
    "PoolInfo",
    "__version__",
    "compile_program",
    "configuration",
    "get_cmake_dir",
    "get_include",
    "get_library_dir",
    "get_num_threads",
    "get_optimization_info",
    "get_pkgconfig_dir",
    "has_avx",
    "has_avx2",
    "has_avx512",
    "has_bfloat16_products",
    "has_f16c",
    "has_fma",
    "has_neon",
    "has_openmp",
    "has_sse4_2",
    "info",
    "ops",
    "packed_checksum",
    "packed_layout",
    "pool_info",
    "probe",
    "program_memory",
    "program_note",
    "set_num_threads",
    "set_pool_limit",
    "simd_level",
    "supports",
    "supports_program",
    "trim_pool",
]

__version__: str = _native.__version__

_settings = ("TENSOR_OPS_CPP_ISA", "TENSOR_OPS_CPP_AMX", "TENSOR_OPS_CPP_WINOGRAD")
if any(os.environ.get(name) for name in _settings) and (_reason := _native.unavailable_reason()):
    # A typing error must not turn a backend off without a word.
    warnings.warn(f"tensor_ops_cpp is unavailable: {_reason}", RuntimeWarning, stacklevel=2)

if os.environ.get("TENSOR_OPS_CPP_POOL_LIMIT") and (_problem := _native.pool_setting_problem()):
    warnings.warn(_problem, RuntimeWarning, stacklevel=2)

#: The instruction-set level in use, such as ``"x86-64-v4"``; None where none can be used.
simd_level: str | None = _native.level()

#: False: calls share their work among threads of this module's own, not OpenMP's.
has_openmp: bool = False

# Features that code of the level in use uses, which may be fewer than the CPU has.
_features = frozenset(_native.features())
has_sse4_2: bool = "sse4_2" in _features
has_avx: bool = "avx" in _features
has_avx2: bool = "avx2" in _features
has_fma: bool = "fma" in _features
has_f16c: bool = "f16c" in _features
has_avx512: bool = "avx512" in _features
has_neon: bool = "neon" in _features

#: The ops by name; each is also an attribute of this module.
ops: dict[str, Callable[..., Any]] = dict(_native.ops)
globals().update(ops)
__all__ += list(ops)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

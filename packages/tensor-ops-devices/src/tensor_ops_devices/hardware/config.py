"""Settings of the backends for their hardware, checked whenever they are assigned.

A setting at its default leaves PyTorch as it is. Any other has an effect, which its description
names, or the backend that cannot give it warns or raises; no setting of the user is ever changed.
Settings that no machine could follow are refused here; those that depend on the device are checked
by the backend, and ahead of it by
`tensor_ops_devices.validation.unified_validator.UnifiedValidator`.
"""

# ruff: noqa: RUF009 -- `setting` returns a field, as `dataclasses.field` does

from __future__ import annotations

import enum
from dataclasses import dataclass

from tensor_ops_devices.hardware.settings import (
    Config,
    choice,
    flag,
    integer,
    member,
    number,
    part,
    setting,
)

__all__ = [
    "HardwareConfig",
    "KernelPyTorchConfig",
    "NVIDIAArchitecture",
    "NVIDIAConfig",
    "TPUCompilationMode",
    "TPUConfig",
    "TPUTopology",
    "TPUVersion",
]


class NVIDIAArchitecture(enum.StrEnum):
    """Generations of NVIDIA GPUs; AUTO is whatever the device is."""

    AUTO = "auto"
    MAXWELL = "maxwell"
    PASCAL = "pascal"
    VOLTA = "volta"
    TURING = "turing"
    AMPERE = "ampere"
    ADA = "ada"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"


class TPUVersion(enum.StrEnum):
    """Generations of Cloud TPUs; AUTO is whatever the device is."""

    AUTO = "auto"
    V2 = "v2"
    V3 = "v3"
    V4 = "v4"
    V5E = "v5e"
    V5P = "v5p"
    V6E = "v6e"
    V7 = "v7"


class TPUTopology(enum.StrEnum):
    """How many TPU hosts work together: one, those of one slice, those of several slices."""

    AUTO = "auto"
    SINGLE = "single"
    POD = "pod"
    SUPERPOD = "superpod"


class TPUCompilationMode(enum.StrEnum):
    """How XLA gets to see a model: as it runs (lazy tensors), or through ``torch.compile``."""

    TORCH_XLA = "torch_xla"
    TORCH_COMPILE = "torch_compile"


@dataclass
class NVIDIAConfig(Config):
    """Settings of `tensor_ops_devices.backends.nvidia.NVIDIABackend`.

    Parameters
    ----------
    architecture : NVIDIAArchitecture
        The generation that the device must be; another one is an error. The validator, on a machine
        without a GPU, checks for this one.
    device_id : int
        The number of the GPU, as ``cuda:0``.
    fp8_enabled : bool
        Let `prepare_model` compute ``nn.Linear`` with `torch.float8_e4m3fn` inputs
        (`tensor_ops_devices.backends.float8`). Needs compute capability 8.9; an error below.
    flash_attention_version : {"auto", "2", "3"}
        What ``scaled_dot_product_attention`` prefers: "2" the FlashAttention-2 of PyTorch (compute
        capability 8.0), "3" FlashAttention-3 (9.0 and the package ``flash_attn_interface``). Calls
        that it does not support go to PyTorch's other kernels.
    tensor_core_version : int or None
        The generation of tensor cores that the device must have, 1 (Volta) to 5 (Blackwell).
    memory_pool_init_mb : int
        Memory that PyTorch's allocator takes from the device at the start, in MB (2**20 bytes).
    memory_growth_enabled : bool or None
        True lets segments of the allocator grow in place (``expandable_segments``). False keeps it
        to `memory_pool_init_mb`: more is an out-of-memory error. None leaves it as it is.
    max_memory_fraction : float or None
        The part of the device's memory that this process may allocate, up to 1.
    precision : {"float32", "float16", "bfloat16"} or None
        What a prepared model computes in; None is the dtype of its parameters.
    allow_fp32 : bool
        With a 16-bit `precision`: True runs the model under ``torch.autocast``, which keeps the
        parameters and the operations that need float32 as they are. False converts the whole
        model.

    Raises
    ------
    tensor_ops.ConfigError
        When made or assigned to, with the name of the setting and what it may be.

    Examples
    --------
    >>> from tensor_ops_devices.hardware.config import NVIDIAArchitecture, NVIDIAConfig
    >>> config = NVIDIAConfig(architecture=NVIDIAArchitecture.HOPPER, fp8_enabled=True)
    >>> config.max_memory_fraction = 90
    Traceback (most recent call last):
        ...
    tensor_ops.errors.ConfigError: NVIDIAConfig.max_memory_fraction is 90 (int); expected ...
    """

    architecture: NVIDIAArchitecture = setting(NVIDIAArchitecture.AUTO, member(NVIDIAArchitecture))
    device_id: int = setting(0, integer(0))
    fp8_enabled: bool = setting(False, flag())
    flash_attention_version: str = setting("auto", choice("auto", "2", "3"))
    tensor_core_version: int | None = setting(None, integer(1, 5, optional=True))
    memory_pool_init_mb: int = setting(0, integer(0))
    memory_growth_enabled: bool | None = setting(None, flag(optional=True))
    max_memory_fraction: float | None = setting(None, number(0, 1, optional=True))
    precision: str | None = setting(None, choice("float32", "float16", "bfloat16", optional=True))
    allow_fp32: bool = setting(True, flag())

    @property
    def converts_model(self) -> bool:
        """Whether `precision` is that of the whole model, which does not run under autocast."""
        return self.precision == "float32" or (self.precision is not None and not self.allow_fp32)


@dataclass
class TPUConfig(Config):
    """Settings of `tensor_ops_devices.backends.tpu.TPUBackend`.

    Parameters
    ----------
    version : TPUVersion
        The generation that the TPU must be; another one is an error. The validator, on a machine
        without a TPU, checks for this one.
    topology : TPUTopology
        How many hosts there must be: one (SINGLE), several in one slice (POD), several slices
        (SUPERPOD).
    compilation_mode : TPUCompilationMode
        "torch_xla" traces the model whenever it runs; "torch_compile" makes it a
        ``torch.compile(model, backend="openxla")``.
    enable_xla_cache : bool
        Keep compiled programs on disk, in ``XLA_PERSISTENT_CACHE_PATH`` or the user's cache
        directory. An error once XLA has compiled something in this process.
    cache_max_size : int or None
        How many compiled programs the process keeps in memory (``XLA_COMPILATION_CACHE_SIZE``).
        Has to be set before XLA compiles anything.
    precision : {"bfloat16", "float32"} or None
        What a prepared model computes in; None is the dtype of its parameters.
    mixed_precision : bool or None
        With precision "bfloat16": True, as None, runs the model under ``torch.autocast``; False
        converts the whole model.
    memory_fraction : float or None
        The part of the TPU's memory that is to be used. XLA has no such limit: a model whose
        parameters do not fit is an error, and `monitor` warns when more is in use.
    allocation_history_retention_seconds : float or None
        For how long `monitor` keeps its samples; None for all of them.
    monitoring_interval_seconds : float
        The time between two samples of `monitor`.
    monitoring_duration_seconds : float or None
        When `monitor` stops by itself; None for when it is told to.

    Raises
    ------
    tensor_ops.ConfigError
        When made or assigned to, with the name of the setting and what it may be.

    Examples
    --------
    >>> from tensor_ops_devices.hardware.config import TPUConfig, TPUTopology, TPUVersion
    >>> config = TPUConfig(version=TPUVersion.V5E, topology=TPUTopology.SINGLE)
    >>> config.precision = "float64"
    Traceback (most recent call last):
        ...
    tensor_ops.errors.ConfigError: TPUConfig.precision is 'float64' (str); ...
    """

    version: TPUVersion = setting(TPUVersion.AUTO, member(TPUVersion))
    topology: TPUTopology = setting(TPUTopology.AUTO, member(TPUTopology))
    compilation_mode: TPUCompilationMode = setting(
        TPUCompilationMode.TORCH_XLA, member(TPUCompilationMode)
    )
    enable_xla_cache: bool = setting(False, flag())
    cache_max_size: int | None = setting(None, integer(1, optional=True))
    precision: str | None = setting(
        None,
        choice("bfloat16", "float32", optional=True, why=", the formats that TPUs compute in"),
    )
    mixed_precision: bool | None = setting(None, flag(optional=True))
    memory_fraction: float | None = setting(None, number(0, 1, optional=True))
    allocation_history_retention_seconds: float | None = setting(None, number(0, optional=True))
    monitoring_interval_seconds: float = setting(1.0, number(0))
    monitoring_duration_seconds: float | None = setting(None, number(0, optional=True))

    @property
    def converts_model(self) -> bool:
        """Whether `precision` is that of the whole model, which does not run under autocast."""
        return self.precision == "float32" or (
            self.precision is not None and self.mixed_precision is False
        )


@dataclass
class HardwareConfig(Config):
    """The settings of each kind of hardware.

    Parameters
    ----------
    nvidia : NVIDIAConfig
    tpu : TPUConfig
    """

    nvidia: NVIDIAConfig = setting(NVIDIAConfig, part(NVIDIAConfig))
    tpu: TPUConfig = setting(TPUConfig, part(TPUConfig))


@dataclass
class KernelPyTorchConfig(Config):
    """Everything that a backend can be told.

    Parameters
    ----------
    hardware : HardwareConfig

    Examples
    --------
    >>> from tensor_ops_devices.hardware.config import KernelPyTorchConfig
    >>> config = KernelPyTorchConfig()
    >>> config.hardware.nvidia.fp8_enabled = True
    >>> config.hardware.nvidia.fp8_enable = True
    Traceback (most recent call last):
        ...
    AttributeError: NVIDIAConfig.fp8_enable is no setting; did you mean 'fp8_enabled'? ...
    """

    hardware: HardwareConfig = setting(HardwareConfig, part(HardwareConfig))

"""The facts of a device, and what follows from its generation."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tensor_ops import ConfigError
from tensor_ops.extension import did_you_mean
from tensor_ops_devices.hardware.config import NVIDIAArchitecture, TPUVersion

__all__ = [
    "CAPABILITIES",
    "GB",
    "LOWEST_CAPABILITY",
    "MB",
    "NVIDIA_MEMORY_GB",
    "TENSOR_CORES",
    "TPU_MEMORY_GB",
    "HardwareProfile",
    "HardwareType",
    "check_capability_names",
    "nvidia_architecture",
    "nvidia_capabilities",
    "tpu_version",
]

# As in the messages of PyTorch and nvidia-smi, which write MiB and GiB.
MB = 2**20
GB = 2**30

A = NVIDIAArchitecture


class HardwareType(enum.StrEnum):
    """The kinds of hardware, which are also the names of their backends."""

    NVIDIA = "nvidia"
    TPU = "tpu"
    AMD = "amd"
    XPU = "xpu"
    MPS = "mps"
    CPU = "cpu"


# The capabilities of devices, as in the guide's table of features.
CAPABILITIES: Mapping[str, str] = {
    "custom_kernels": "kernels of tensor_ops",
    "flash_attention_2": "FlashAttention-2, as PyTorch has it",
    "flash_attention_3": "FlashAttention-3",
    "fp8": "matrix products of float8 inputs",
    "xla": "compiled by XLA",
    "float16": "matrix products of float16",
    "bfloat16": "matrix products of bfloat16",
    "float64": "float64",
    "multi_device": "more than one device in this process",
    "dynamic_shapes": "shapes that depend on values, without compiling again",
}

TENSOR_CORES = {A.VOLTA: 1, A.TURING: 2, A.AMPERE: 3, A.ADA: 4, A.HOPPER: 4, A.BLACKWELL: 5}
# The first compute capability of an architecture, where nothing else is known.
LOWEST_CAPABILITY: Mapping[NVIDIAArchitecture, tuple[int, int]] = {
    A.MAXWELL: (5, 0),
    A.PASCAL: (6, 0),
    A.VOLTA: (7, 0),
    A.TURING: (7, 5),
    A.AMPERE: (8, 0),
    A.ADA: (8, 9),
    A.HOPPER: (9, 0),
    A.BLACKWELL: (10, 0),
}
# The memory of an architecture's data centre GPUs, rising, and of GPUs with more than they. GB as
# data sheets write them are GB of 2**30 bytes of which the driver keeps a little. Sources:
# https://www.nvidia.com/en-us/data-center/<name>/ of h100, h200, grace-hopper-superchip, dgx-b200
# (1,440 GB in 8 GPUs), dgx-b300 (2.3 TB in 8), a100, l4, l40s, tesla-t4, v100, tesla-p100;
# https://www.nvidia.com/en-us/autonomous-machines/embedded-systems/jetson-agx-xavier/; data sheets
# of Quadro RTX 8000, Tesla P40, Tesla M40.
NVIDIA_MEMORY_GB: Mapping[NVIDIAArchitecture, Mapping[str, int]] = {
    A.MAXWELL: {"Tesla M40": 24},
    A.PASCAL: {"Tesla P100": 16, "Tesla P40": 24},
    A.VOLTA: {"V100": 32, "Jetson AGX Xavier": 64},
    A.TURING: {"T4": 16, "Quadro RTX 8000": 48},
    A.AMPERE: {"A10": 24, "A100": 80},
    A.ADA: {"L4": 24, "L40S": 48},
    A.HOPPER: {"H100": 80, "H200": 141, "GH200": 144},
    A.BLACKWELL: {"B200": 180, "B300": 288},
}
# The memory of one chip; https://cloud.google.com/tpu/docs/system-architecture-tpu-vm
TPU_MEMORY_GB: Mapping[TPUVersion, int] = {
    TPUVersion.V2: 16,
    TPUVersion.V3: 32,
    TPUVersion.V4: 32,
    TPUVersion.V5E: 16,
    TPUVersion.V5P: 95,
    TPUVersion.V6E: 32,
    TPUVersion.V7: 192,
}
_MAJOR = {5: A.MAXWELL, 6: A.PASCAL, 9: A.HOPPER, **dict.fromkeys((10, 11, 12), A.BLACKWELL)}
_NAMES = {
    A.BLACKWELL: r"\b(G?B[123]00|B200|RTX PRO|RTX 50\d\d|Thor)\b",
    A.HOPPER: r"\b(G?H[12]00|H20|H800)\b",
    A.ADA: r"\b(L4|L20|L40S?|RTX 40\d\d|Ada)\b",
    A.AMPERE: r"\b(A100|A800|A[1-4]0|A16|A2|RTX A\d+|RTX 30\d\d|Orin)\b",
    A.TURING: r"\b(T4|T4G|RTX 20\d\d|GTX 16\d\d|Quadro RTX)\b",
    A.VOLTA: r"\b(V100\S*|TITAN V|Xavier)\b",
    A.PASCAL: r"\b(P100\S*|P40|P4|GTX 10\d\d|TITAN X[pP]?)\b",
    A.MAXWELL: r"\b(M40|M60|GTX 9\d\d)\b",
}
_TPU_KINDS = {
    r"v?7x?": TPUVersion.V7,
    r"v6( ?lite|e)": TPUVersion.V6E,
    r"v5( ?lite|e|litepod)": TPUVersion.V5E,
    r"v5p?": TPUVersion.V5P,
    r"v4": TPUVersion.V4,
    r"v3": TPUVersion.V3,
    r"v2": TPUVersion.V2,
}


@dataclass(frozen=True)
class HardwareProfile:
    """The facts of one kind of hardware, read from it.

    Attributes
    ----------
    hardware_type : HardwareType
        "nvidia", "tpu", "amd", "xpu" (Intel), "mps" (Apple) or "cpu".
    device_name : str
        What the first device calls itself.
    device_count : int
        How many of them this process sees; a CPU counts as one.
    total_memory_gb : float
        The memory of one device that this process may use, in GB (2**30 bytes).
    compute_capability : tuple of int or None
        Of an NVIDIA GPU, as (9, 0).
    architecture : str or None
        Of a GPU: an `NVIDIAArchitecture`, or AMD's name such as "gfx942".
    tpu_version : TPUVersion or None
    host_count : int
        How many hosts work together, on a TPU.
    slice_count : int
        How many slices those hosts are in.
    compute_units : int or None
        Streaming multiprocessors of a GPU; logical processors of a CPU that this process may use.
    isa : str or None
        Of a CPU, its highest instruction-set level that tensor_ops_cpp knows, as "x86-64-v4".
    software : str
        What drives it: PyTorch's version and that of CUDA, ROCm or torch_xla.
    capabilities : frozenset of str
        Those of `CAPABILITIES` that it has.
    """

    hardware_type: HardwareType
    device_name: str
    device_count: int
    total_memory_gb: float
    compute_capability: tuple[int, int] | None = None
    architecture: str | None = None
    tpu_version: TPUVersion | None = None
    host_count: int = 1
    slice_count: int = 1
    compute_units: int | None = None
    isa: str | None = None
    software: str = ""
    capabilities: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_capability_names(self.capabilities)

    def supports(self, capability: str) -> bool:
        """Return whether the hardware has one of `CAPABILITIES`.

        Raises
        ------
        tensor_ops.ConfigError
            If there is no such capability.
        """
        check_capability_names([capability])
        return capability in self.capabilities

    def __str__(self) -> str:
        capability = self.compute_capability
        rows = {
            "hardware": self.hardware_type.value,
            "device": f"{self.device_name} ({self.device_count})",
            "memory": f"{self.total_memory_gb:.1f} GB",
            "architecture": self.architecture,
            "compute capability": capability and f"{capability[0]}.{capability[1]}",
            "version": self.tpu_version,
            "compute units": self.compute_units,
            "instruction set": self.isa,
            "software": self.software,
            "capabilities": ", ".join(each for each in CAPABILITIES if each in self.capabilities),
        }
        return "\n".join(f"{name:<18}  {value}" for name, value in rows.items() if value)


def check_capability_names(names: object) -> None:
    """Raise ConfigError for what is not in `CAPABILITIES`."""
    if isinstance(names, str):
        names = [names]
    for name in names:  # type: ignore[attr-defined]
        if name not in CAPABILITIES:
            near = did_you_mean(str(name), CAPABILITIES)
            raise ConfigError(
                f"{name!r} is no capability; {near}expected one of {', '.join(CAPABILITIES)}"
            )


def nvidia_architecture(capability: tuple[int, int], name: str = "") -> NVIDIAArchitecture | None:
    """Return the architecture with a compute capability; one unknown here is told by the name.

    Examples
    --------
    >>> nvidia_architecture((8, 9))
    <NVIDIAArchitecture.ADA: 'ada'>
    >>> nvidia_architecture((99, 0), "NVIDIA H200 NVL")
    <NVIDIAArchitecture.HOPPER: 'hopper'>
    """
    major, minor = capability
    if major == 7:
        return A.TURING if minor >= 5 else A.VOLTA
    if major == 8:
        return A.ADA if minor == 9 else A.AMPERE
    if major in _MAJOR:
        return _MAJOR[major]
    matches = (each for each, pattern in _NAMES.items() if re.search(pattern, name))
    return next(matches, None)


def nvidia_capabilities(capability: tuple[int, int]) -> frozenset[str]:
    """Return which of `CAPABILITIES` the GPUs of a compute capability have by themselves."""
    needed = {
        "dynamic_shapes": (0, 0),
        "float64": (0, 0),
        "float16": (5, 3),
        "custom_kernels": (7, 5),  # what tensor_ops_cuda is compiled for
        "flash_attention_2": (8, 0),
        "bfloat16": (8, 0),
        "fp8": (8, 9),
    }
    found = {name for name, least in needed.items() if capability >= least}
    return frozenset(found | ({"flash_attention_3"} if capability == (9, 0) else set()))


def tpu_version(kind: str) -> TPUVersion | None:
    """Return the version that the runtime's name of a TPU stands for, None if it is unknown.

    Examples
    --------
    >>> tpu_version("TPU v5 lite")
    <TPUVersion.V5E: 'v5e'>
    """
    name = re.sub(r"^tpu[ _-]*", "", kind.strip().lower())
    matches = (each for pattern, each in _TPU_KINDS.items() if re.fullmatch(pattern, name))
    return next(matches, None)

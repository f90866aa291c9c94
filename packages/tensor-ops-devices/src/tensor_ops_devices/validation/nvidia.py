"""The settings of an NVIDIA GPU, held against a GPU or a generation of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.attention

from tensor_ops_devices.hardware.config import NVIDIAArchitecture, NVIDIAConfig
from tensor_ops_devices.hardware.profile import (
    GB,
    LOWEST_CAPABILITY,
    MB,
    NVIDIA_MEMORY_GB,
    TENSOR_CORES,
    HardwareProfile,
)
from tensor_ops_devices.validation.report import ValidationCheck, failed, passed, skipped, warning

__all__ = ["NVIDIATarget", "check_settings", "flash_attention_3_missing"]

FLASH_ATTENTION_3 = "flash_attn_interface"


@dataclass(frozen=True)
class NVIDIATarget:
    """The GPU that settings are held against: one that is here, or one of a generation.

    What is None follows from the GPU or the generation, and neither is known.
    """

    name: str
    capability: tuple[int, int] | None
    architecture: str | None
    memory: int | None  # bytes; of the largest GPU of the generation where none is here
    is_here: bool

    @classmethod
    def of(cls, profile: HardwareProfile) -> NVIDIATarget:
        """Return a GPU that is here."""
        memory = round(profile.total_memory_gb * GB)
        capability = profile.compute_capability
        return cls(profile.device_name, capability, profile.architecture, memory, True)

    @classmethod
    def wanted(cls, architecture: NVIDIAArchitecture) -> NVIDIATarget:
        """Return what a GPU of a generation has at least, and the most memory that one has."""
        capability = LOWEST_CAPABILITY.get(architecture)
        if capability is None:
            return cls("an NVIDIA GPU", None, None, None, False)
        memory = max(NVIDIA_MEMORY_GB[architecture].values()) * GB
        return cls(f"a GPU of {architecture.name}", capability, architecture, memory, False)

    @property
    def sm(self) -> str:
        """The compute capability as compilers write it."""
        return "sm_{}{}".format(*self.capability) if self.capability else "sm_?"

    @property
    def text(self) -> str:
        """The name and the compute capability."""
        return f"{self.name} ({self.sm})"

    def budget(self, fraction: float | None) -> int | None:
        """Return the bytes that this process may allocate, at most."""
        return None if self.memory is None else int(self.memory * (fraction or 1))


def check_settings(settings: NVIDIAConfig, target: NVIDIATarget) -> list[ValidationCheck]:
    """Check each setting that asks for something."""
    asked_for = settings.changed()
    return [_RULES[name](settings, target) for name in _RULES if name in asked_for]


def flash_attention_3_missing() -> str | None:
    """Return what FlashAttention-3 lacks here besides the GPU, None if nothing."""
    if not hasattr(torch.nn.attention, "activate_flash_attention_impl"):
        return f"PyTorch {torch.__version__} cannot be given another FlashAttention"
    if importlib.util.find_spec(FLASH_ATTENTION_3) is None:
        return f"the package {FLASH_ATTENTION_3} is not installed"
    return None


def _architecture(settings: NVIDIAConfig, target: NVIDIATarget) -> ValidationCheck:
    wanted = settings.architecture
    if not target.is_here:
        return skipped("architecture", f"no GPU is here to be {wanted.name}", "run it on the GPU")
    if target.architecture == wanted:
        return passed("architecture", f"{target.text} is {wanted.name}")
    found = (target.architecture or "unknown").upper()
    return failed(
        "architecture",
        f"{wanted.name} is asked for, {target.text} is {found}",
        "choose another device_id, or NVIDIAArchitecture.AUTO to take what is there",
    )


def _tensor_cores(settings: NVIDIAConfig, target: NVIDIATarget) -> ValidationCheck:
    name, wanted = "tensor_core_version", settings.tensor_core_version
    if target.capability is None:
        return _unknown(name)
    there = TENSOR_CORES.get(NVIDIAArchitecture(target.architecture or "auto"))
    if there == wanted:
        return passed(name, f"{target.text} has tensor cores of generation {there}")
    return failed(
        name,
        f"generation {wanted} is asked for, {target.text} has {there or 'no tensor cores'}",
        f"set it to {there}, or to None to take what is there" if there else "set it to None",
    )


def _fp8(settings: NVIDIAConfig, target: NVIDIATarget) -> ValidationCheck:
    if target.capability is None:
        return _unknown("fp8_enabled")
    if target.capability >= (8, 9):
        return passed("fp8_enabled", f"{target.text} multiplies float8")
    return failed(
        "fp8_enabled",
        f"{target.text} cannot multiply float8, which needs sm_89 (Ada, Hopper, Blackwell)",
        "set fp8_enabled=False, and precision='bfloat16' for 16 bits",
    )


def _attention(settings: NVIDIAConfig, target: NVIDIATarget) -> ValidationCheck:
    name, version = "flash_attention_version", settings.flash_attention_version
    if target.capability is None:
        return _unknown(name)
    if version == "2":
        if target.capability >= (8, 0):
            return passed(name, f"{target.text} runs FlashAttention-2")
        return failed(name, f"{target.text} cannot run FlashAttention-2, which needs sm_80", _AUTO)
    if target.capability != (9, 0):
        return failed(
            name,
            f"{target.text} cannot run FlashAttention-3, whose kernels in PyTorch are for sm_90",
            _AUTO,
        )
    if (missing := flash_attention_3_missing()) is None:
        return passed(name, f"{target.text} runs FlashAttention-3")
    if target.is_here:
        install = "build it from https://github.com/Dao-AILab/flash-attention/tree/main/hopper"
        return failed(name, missing, f"{install}, or {_AUTO}")
    return skipped(name, f"{target.text} can run it; here {missing}", "run it on the GPU")


def _precision(settings: NVIDIAConfig, target: NVIDIATarget) -> ValidationCheck:
    precision = settings.precision
    if target.capability is None:
        return _unknown("precision")
    if precision == "bfloat16" and target.capability < (8, 0):
        return warning(
            "precision",
            f"{target.text} has no arithmetic for bfloat16 and emulates it",
            "set precision='float16'",
        )
    if precision == "float16" and target.capability < (5, 3):
        return failed(
            "precision", f"{target.text} has no float16 arithmetic", "set precision='float32'"
        )
    return passed("precision", f"{target.text} computes {precision}")


def _allow_fp32(settings: NVIDIAConfig, target: NVIDIATarget) -> ValidationCheck:
    if settings.precision == "float32":
        return failed(
            "allow_fp32", "precision='float32' is not allowed to be float32", "set allow_fp32=True"
        )
    if settings.precision is None:
        return warning(
            "allow_fp32",
            "has no effect: precision is None, which leaves the model's dtypes as they are",
            "set precision to 'float16' or 'bfloat16'",
        )
    return passed("allow_fp32", f"the whole model is converted to {settings.precision}")


def _pool(settings: NVIDIAConfig, target: NVIDIATarget) -> ValidationCheck:
    name, wanted = "memory_pool_init_mb", settings.memory_pool_init_mb
    budget = target.budget(settings.max_memory_fraction)
    if budget is not None and wanted * MB > budget:
        return failed(
            name,
            f"{wanted} MB are more than the {budget / MB:.0f} MB that may be allocated",
            "lower it, or raise max_memory_fraction",
        )
    if budget is None or not target.is_here:
        return skipped(name, f"{wanted} MB are asked for", "run it on the GPU")
    return passed(name, f"{wanted} of {budget / MB:.0f} MB")


def _growth(settings: NVIDIAConfig, target: NVIDIATarget) -> ValidationCheck:
    name = "memory_growth_enabled"
    if not settings.memory_growth_enabled and settings.memory_pool_init_mb == 0:
        return failed(
            name,
            "memory must not grow beyond a pool of 0 MB: nothing could be allocated",
            "set memory_pool_init_mb, or memory_growth_enabled=None",
        )
    if not settings.memory_growth_enabled:
        return passed(name, f"memory stays within {settings.memory_pool_init_mb} MB")
    return passed(name, "segments of the allocator grow in place")


def _fraction(settings: NVIDIAConfig, target: NVIDIATarget) -> ValidationCheck:
    budget = target.budget(settings.max_memory_fraction)
    limit = f"{settings.max_memory_fraction:.0%} of the memory"
    if budget is None or not target.is_here:
        return skipped("max_memory_fraction", f"{limit} is asked for", "run it on the GPU")
    return passed("max_memory_fraction", f"{limit} is {budget / MB:.0f} MB")


def _unknown(name: str) -> ValidationCheck:
    return skipped(
        name,
        "no NVIDIA GPU is here, and none is named",
        "set NVIDIAConfig.architecture, or run it on the GPU",
    )


_AUTO = "set flash_attention_version='auto' and PyTorch chooses what the GPU can"
_RULES: dict[str, Callable[[NVIDIAConfig, NVIDIATarget], ValidationCheck]] = {
    "architecture": _architecture,
    "tensor_core_version": _tensor_cores,
    "fp8_enabled": _fp8,
    "flash_attention_version": _attention,
    "precision": _precision,
    "allow_fp32": _allow_fp32,
    "max_memory_fraction": _fraction,
    "memory_pool_init_mb": _pool,
    "memory_growth_enabled": _growth,
}

"""Checks of whether the parameters of a model fit into a memory.

The checks are given the bytes that are needed: those of the parameters and buffers, in the dtypes
that they will have.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from tensor_ops_devices.hardware.config import NVIDIAArchitecture, NVIDIAConfig, TPUConfig
from tensor_ops_devices.hardware.profile import GB, MB, NVIDIA_MEMORY_GB, TPU_MEMORY_GB
from tensor_ops_devices.validation.model import ModelFacts
from tensor_ops_devices.validation.nvidia import NVIDIATarget
from tensor_ops_devices.validation.report import ValidationCheck, failed, passed, skipped, warning
from tensor_ops_devices.validation.tpu import TPUTarget

__all__ = ["check_nvidia_memory", "check_tpu_memory"]

# With gradients and Adam's two moments, parameters take four times their size.
_TRAINING = 3
_LESS = "use 16 bits, a smaller model or more devices"
_LESS_TRAINING = "train in 16 bits or on more devices; to infer, call model.eval()"


def check_nvidia_memory(
    model: nn.Module, facts: ModelFacts, settings: NVIDIAConfig, target: NVIDIATarget
) -> ValidationCheck:
    """Check a model against the memory of a GPU, of a generation or of any GPU that is known."""
    needed, fraction, pool = _needed(model, facts, settings), settings.max_memory_fraction, None
    if settings.memory_growth_enabled is False:
        pool = settings.memory_pool_init_mb * MB
    if not target.is_here and (pool is None or needed <= pool):
        if target.architecture:
            architecture = NVIDIAArchitecture(target.architecture)
            return _check_generation(facts, needed, architecture, fraction)
        sizes = {name: size for each in NVIDIA_MEMORY_GB.values() for name, size in each.items()}
        largest = _largest("GPU that is known", sizes, "max_memory_fraction", fraction)
        todo = "set NVIDIAConfig.architecture, or run it on the GPU"
        return _check_unknown(facts, needed, largest, todo)
    budgets = [each for each in (target.budget(fraction), pool) if each is not None]
    return _check_memory(facts, needed, min(budgets))


def check_tpu_memory(
    model: nn.Module, facts: ModelFacts, settings: TPUConfig, target: TPUTarget
) -> ValidationCheck:
    """Check a model against the memory of a TPU, or of any that is known."""
    needed, fraction = _needed(model, facts, settings), settings.memory_fraction
    if target.memory is None:
        sizes = {each.value: size for each, size in TPU_MEMORY_GB.items()}
        largest = _largest("TPU that is known", sizes, "memory_fraction", fraction)
        todo = "set TPUConfig.version, or run it on the TPU"
        return _check_unknown(facts, needed, largest, todo)
    return _check_memory(facts, needed, int(target.memory * (fraction or 1)))


def _needed(model: nn.Module, facts: ModelFacts, settings: NVIDIAConfig | TPUConfig) -> int:
    """Return the bytes of a model in the precision that the settings bring it to."""
    if not settings.converts_model or settings.precision is None:
        return facts.nbytes
    dtype: torch.dtype = getattr(torch, settings.precision)
    return facts.constant + sum(
        each.numel() * (dtype.itemsize if each.is_floating_point() else each.itemsize)
        for each in (*model.parameters(), *model.buffers())
        if not nn.parameter.is_lazy(each)
    )


def _largest(
    kind: str, sizes: Mapping[str, int], setting: str, fraction: float | None
) -> tuple[str, float]:
    """Return what is said of the largest of devices, by their memory in GB, and its bytes.

    `fraction` is the part of them that a setting allows, None for all.
    """
    name, size = max(sizes.items(), key=lambda each: each[1])
    text = f"the largest {kind}, {name}, has {size} GB{_limit(setting, fraction)}"
    return text, size * GB * (fraction or 1)


def _check_memory(facts: ModelFacts, needed: int, budget: int) -> ValidationCheck:
    """Check a model against the memory of a device, of which `budget` bytes may be allocated."""
    if facts.lazy is not None:
        return _uninitialized(facts)
    text = f"parameters and buffers take {needed / MB:.1f} MB of {budget / MB:.0f} MB"
    if needed > budget:
        return failed("memory", text, _LESS)
    training = needed + _TRAINING * facts.trained
    if training > budget:
        return warning(
            "memory",
            f"{text}; with gradients and Adam's moments {training / MB:.1f} MB, before activations",
            _LESS_TRAINING,
        )
    return passed("memory", f"{text}, before activations")


def _check_generation(
    facts: ModelFacts, needed: int, architecture: NVIDIAArchitecture, fraction: float | None
) -> ValidationCheck:
    """Check a model against all GPUs of a generation, any but AUTO, where none is here.

    `fraction` is the part of the memory that may be allocated.
    """
    sizes = NVIDIA_MEMORY_GB[architecture]
    (small, least), *_, (large, most) = [*sizes.items(), *sizes.items()]
    setting = "max_memory_fraction"
    largest = _largest(f"GPU of {architecture.name}", sizes, setting, fraction)
    if (refusal := _refusal(facts, needed, largest)) is not None:
        return refusal
    text = f"parameters and buffers take {needed / GB:.1f} GB"
    if needed > least * GB * (fraction or 1):
        message = f"{text}, more than {small} has ({least} GB); {large} has {most} GB"
        message += _limit(setting, fraction)
        return warning("memory", message, f"run it on {large}, or {_LESS}")
    known = ", ".join(f"{name} {size} GB" for name, size in sizes.items())
    message = f"{text}; not checked, GPUs of {architecture.name} differ ({known})"
    return skipped("memory", message, "run it on the GPU")


def _check_unknown(
    facts: ModelFacts, needed: int, largest: tuple[str, float], what_to_do: str
) -> ValidationCheck:
    """Check a model where the device is neither here nor named: whether the largest could hold it.

    `what_to_do` says what would make the memory known.
    """
    if (refusal := _refusal(facts, needed, largest)) is not None:
        return refusal
    text = f"parameters and buffers take {needed / MB:.1f} MB; not checked, the memory is unknown"
    return skipped("memory", text, what_to_do)


def _refusal(facts: ModelFacts, needed: int, largest: tuple[str, float]) -> ValidationCheck | None:
    """Return the check of a model whose size is unknown or beyond the largest device, else None."""
    if facts.lazy is not None:
        return _uninitialized(facts)
    text, (has, budget) = f"parameters and buffers take {needed / GB:.1f} GB", largest
    if needed > budget:
        return failed("memory", f"{text}; {has}", _LESS)
    training = needed + _TRAINING * facts.trained
    if training > budget:
        text += f", with gradients and Adam's moments {training / GB:.1f} GB"
        return warning("memory", f"{text}; {has}", _LESS_TRAINING)
    return None


def _limit(setting: str, fraction: float | None) -> str:
    return f" ({setting} allows {fraction:.0%})" if fraction is not None else ""


def _uninitialized(facts: ModelFacts) -> ValidationCheck:
    message = f"{facts.lazy} is not initialized, so that its size is unknown"
    return skipped("memory", message, "call the model once before")

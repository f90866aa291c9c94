"""Whether the parameters of a model fit into a memory.

The checks are given the bytes that are needed: those of the parameters and buffers, in the dtypes
that they will have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from tensor_ops_torch.hardware.config import NVIDIAArchitecture
from tensor_ops_torch.hardware.profile import GB, MB, NVIDIA_MEMORY_GB
from tensor_ops_torch.validation.model import ModelFacts
from tensor_ops_torch.validation.report import ValidationCheck, failed, passed, skipped, warning

__all__ = ["Largest", "check_generation", "check_memory", "check_unknown", "size_in_dtype"]

# With gradients and Adam's two moments, parameters take four times their size.
_TRAINING = 3
_LESS = "use 16 bits, a smaller model or more devices"
_LESS_TRAINING = "train in 16 bits or on more devices; to infer, call model.eval()"


@dataclass(frozen=True)
class Largest:
    """The device of a kind that has the most memory."""

    # What it is and what it has.
    text: str
    # Bytes that may be allocated.
    budget: float

    @classmethod
    def of(
        cls, kind: str, sizes: Mapping[str, int], setting: str, fraction: float | None
    ) -> Largest:
        """Return the largest of devices, by their memory in GB.

        `fraction` is the part of it that a setting allows, None for all.
        """
        name, size = max(sizes.items(), key=lambda each: each[1])
        text = f"the largest {kind}, {name}, has {size} GB{_limit(setting, fraction)}"
        return cls(text, size * GB * (fraction or 1))


def size_in_dtype(model: nn.Module, dtype: torch.dtype) -> int:
    """Return the bytes of a model whose floating-point parameters are converted to a dtype."""
    return sum(
        each.numel() * (dtype.itemsize if each.is_floating_point() else each.itemsize)
        for each in (*model.parameters(), *model.buffers())
        if not nn.parameter.is_lazy(each)
    )


def check_memory(facts: ModelFacts, needed: int, budget: int) -> ValidationCheck:
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


def check_generation(
    facts: ModelFacts, needed: int, architecture: NVIDIAArchitecture, fraction: float | None
) -> ValidationCheck:
    """Check a model against all GPUs of a generation, any but AUTO, where none is here.

    `fraction` is the part of the memory that may be allocated.
    """
    sizes = NVIDIA_MEMORY_GB[architecture]
    (small, least), *_, (large, most) = [*sizes.items(), *sizes.items()]
    setting = "max_memory_fraction"
    largest = Largest.of(f"GPU of {architecture.name}", sizes, setting, fraction)
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


def check_unknown(
    facts: ModelFacts, needed: int, largest: Largest, what_to_do: str
) -> ValidationCheck:
    """Check a model where the device is neither here nor named: whether the largest could hold it.

    `what_to_do` says what would make the memory known.
    """
    if (refusal := _refusal(facts, needed, largest)) is not None:
        return refusal
    text = f"parameters and buffers take {needed / MB:.1f} MB; not checked, the memory is unknown"
    return skipped("memory", text, what_to_do)


def _refusal(facts: ModelFacts, needed: int, largest: Largest) -> ValidationCheck | None:
    """Return the check of a model whose size is unknown or beyond the largest device, else None."""
    if facts.lazy is not None:
        return _uninitialized(facts)
    text = f"parameters and buffers take {needed / GB:.1f} GB"
    if needed > largest.budget:
        return failed("memory", f"{text}; {largest.text}", _LESS)
    training = needed + _TRAINING * facts.trained
    if training > largest.budget:
        text += f", with gradients and Adam's moments {training / GB:.1f} GB"
        return warning("memory", f"{text}; {largest.text}", _LESS_TRAINING)
    return None


def _limit(setting: str, fraction: float | None) -> str:
    return f" ({setting} allows {fraction:.0%})" if fraction is not None else ""


def _uninitialized(facts: ModelFacts) -> ValidationCheck:
    message = f"{facts.lazy} is not initialized, so that its size is unknown"
    return skipped("memory", message, "call the model once before")

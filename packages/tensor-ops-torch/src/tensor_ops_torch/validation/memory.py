"""Whether the parameters of a model fit into a memory."""

from __future__ import annotations

import torch
from torch import nn

from tensor_ops_torch.hardware.config import NVIDIAArchitecture
from tensor_ops_torch.hardware.profile import GB, MB, NVIDIA_MEMORY_GB
from tensor_ops_torch.validation.model import ModelFacts
from tensor_ops_torch.validation.report import ValidationCheck, failed, passed, skipped, warning

__all__ = ["check_generation", "check_memory", "size_in_dtype"]

# With gradients and Adam's two moments, parameters take four times their size.
_TRAINING = 3
_LESS = "use 16 bits, a smaller model or more devices"
_LESS_TRAINING = "train in 16 bits or on more devices; to infer, call model.eval()"


def size_in_dtype(model: nn.Module, dtype: torch.dtype) -> int:
    """Return the bytes of a model whose floating-point parameters are converted to a dtype."""
    return sum(
        each.numel() * (dtype.itemsize if each.is_floating_point() else each.itemsize)
        for each in (*model.parameters(), *model.buffers())
        if not nn.parameter.is_lazy(each)
    )


def check_memory(
    facts: ModelFacts, needed: int, budget: int | None, what_to_do: str
) -> ValidationCheck:
    """Check a model against the memory of a device.

    Parameters
    ----------
    facts : ModelFacts
    needed : int
        Bytes of the parameters and buffers, in the dtypes that they will have.
    budget : int or None
        Bytes that may be allocated; None if that is not known.
    what_to_do : str
        What would make it known.
    """
    if facts.lazy is not None:
        return _uninitialized(facts)
    text = f"parameters and buffers take {needed / MB:.1f} MB"
    if budget is None:
        return skipped("memory", f"{text}; not checked, the memory is unknown", what_to_do)
    text += f" of {budget / MB:.0f} MB"
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
    """Check a model against all GPUs of a generation, where none is here.

    Parameters
    ----------
    facts : ModelFacts
    needed : int
        Bytes of the parameters and buffers, in the dtypes that they will have.
    architecture : NVIDIAArchitecture
        Any but AUTO.
    fraction : float or None
        The part of the memory that may be allocated.
    """
    if facts.lazy is not None:
        return _uninitialized(facts)
    sizes = NVIDIA_MEMORY_GB[architecture]
    (small, least), *_, (large, most) = [*sizes.items(), *sizes.items()]
    text = f"parameters and buffers take {needed / GB:.1f} GB"
    limit = f" (max_memory_fraction allows {fraction:.0%})" if fraction is not None else ""
    factor = GB * (fraction or 1)
    if needed > most * factor:
        message = f"{text}; the largest GPU of {architecture.name}, {large}, has {most} GB{limit}"
        return failed("memory", message, _LESS)
    training = needed + _TRAINING * facts.trained
    if training > most * factor:
        message = f"{text}, with gradients and Adam's moments {training / GB:.1f} GB"
        message += f"; the largest GPU of {architecture.name}, {large}, has {most} GB{limit}"
        return warning("memory", message, _LESS_TRAINING)
    if needed > least * factor:
        message = f"{text}, more than {small} has ({least} GB); {large} has {most} GB{limit}"
        return warning("memory", message, f"run it on {large}, or {_LESS}")
    known = ", ".join(f"{name} {size} GB" for name, size in sizes.items())
    message = f"{text}; not checked, GPUs of {architecture.name} differ ({known})"
    return skipped("memory", message, "run it on the GPU")


def _uninitialized(facts: ModelFacts) -> ValidationCheck:
    message = f"{facts.lazy} is not initialized, so that its size is unknown"
    return skipped("memory", message, "call the model once before")

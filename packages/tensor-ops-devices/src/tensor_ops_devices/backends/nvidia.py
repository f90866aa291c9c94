"""NVIDIA GPUs."""

from __future__ import annotations

import inspect
import os

import torch
import torch.nn.attention
from torch import nn

from tensor_ops import BackendError
from tensor_ops.extension import warn_caller
from tensor_ops_devices.backends.base import Backend
from tensor_ops_devices.backends.float8 import to_float8
from tensor_ops_devices.backends.runtimes import CudaRuntime, Runtime
from tensor_ops_devices.hardware.config import NVIDIAConfig
from tensor_ops_devices.hardware.detector import HardwareType, probe
from tensor_ops_devices.hardware.profile import GB, MB, HardwareProfile
from tensor_ops_devices.validation.nvidia import NVIDIATarget, check_settings

__all__ = ["NVIDIABackend"]

# Either names the settings of PyTorch's allocator; the second one is of PyTorch 2.9.
_ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_BLOCK = 2 * MB  # the allocator rounds large blocks to it


class NVIDIABackend(Backend):
    """An NVIDIA GPU, with the settings ``config.hardware.nvidia``.

    When it is made, it applies to the process what PyTorch has one of: the part of the memory that
    may be allocated, the pool and its growth, and the preferred attention. `close`, or the end
    of a ``with``, takes back all but memory that is allocated. `prepare_model` applies precision
    and float8 to the model. See `Backend` for parameters and methods, and `NVIDIAConfig` for the
    settings.

    Without a GPU that this PyTorch can use, models are prepared for the CPU, with one warning.

    Examples
    --------
    >>> import warnings
    >>> import torch
    >>> from tensor_ops_devices.backends.nvidia import NVIDIABackend
    >>> with warnings.catch_warnings(action="ignore"):  # where there is no GPU
    ...     backend = NVIDIABackend()
    >>> backend.prepare_model(torch.nn.Linear(4, 2)).weight.device == backend.device
    True
    """

    name = "nvidia"
    _settings: NVIDIAConfig

    def _find(self) -> Runtime | str:
        found = probe(HardwareType.NVIDIA, self._settings.device_id)
        if isinstance(found, str):
            return found
        self._profile: HardwareProfile = found
        return CudaRuntime(self._settings.device_id)

    def _configure(self) -> None:
        settings = self._settings
        self._warn_or_raise(check_settings(settings, NVIDIATarget.of(self._profile)))
        self._set_precision()
        self._limit_memory(settings)
        if settings.memory_growth_enabled:
            self.let_segments_grow()
        if settings.memory_pool_init_mb:
            # Freed at once: the allocator keeps it for what comes.
            size = settings.memory_pool_init_mb * MB
            torch.empty(size, dtype=torch.uint8, device=self.device)
        self._prefer_attention(settings.flash_attention_version)

    def _convert(self, model: nn.Module) -> nn.Module:
        if not self._settings.fp8_enabled:
            return model
        outcome = to_float8(model)
        left = {name or "the model": reason for name, reason in outcome.items() if reason}
        if not outcome:
            note = "the model has no nn.Linear; it computes as before"
        elif left:
            name, reason = next(iter(left.items()))
            note = (
                f"{len(left)} of {len(outcome)} nn.Linear stay as they are, the first {name!r}: "
                f"{reason}"
            )
        else:
            return model
        warn_caller(f"NVIDIABackend: fp8_enabled: {note}", RuntimeWarning)
        return model

    def _limit_memory(self, settings: NVIDIAConfig) -> None:
        fraction = settings.max_memory_fraction
        if settings.memory_growth_enabled is False:
            pool = settings.memory_pool_init_mb * MB + _BLOCK
            fraction = min(fraction or 1.0, pool / round(self._profile.total_memory_gb * GB))
        if fraction is None:
            return
        # Not in PyTorch 2.6, where the limit stays as it is set here.
        before = getattr(torch.cuda.memory, "get_per_process_memory_fraction", lambda _: 1.0)
        self._undo.callback(
            torch.cuda.set_per_process_memory_fraction, before(self.device), self.device
        )
        torch.cuda.set_per_process_memory_fraction(fraction, self.device)

    def let_segments_grow(self) -> None:
        """Let the allocator extend its segments, unless the environment decides on that."""
        chosen = ",".join(filter(None, map(os.environ.get, _ALLOCATOR_VARIABLES)))
        if "expandable_segments" in chosen:
            if "expandable_segments:true" not in chosen.replace(" ", "").lower():
                raise BackendError(
                    "NVIDIABackend: memory_growth_enabled is True, but the environment says "
                    f"{chosen!r}; take expandable_segments out of there, or set it to None"
                )
            return
        # All settings are given at once; those of the environment stay what they are.
        rest = [chosen] if chosen else []
        set_allocator(",".join([*rest, "expandable_segments:True"]))
        self._undo.callback(set_allocator, ",".join([*rest, "expandable_segments:False"]))

    def _prefer_attention(self, version: str) -> None:
        if version == "auto":
            return
        attention = torch.nn.attention
        if version == "3":
            attention.activate_flash_attention_impl("FA3")
            self._undo.callback(attention.restore_flash_attention_impl)
        kinds = attention.SDPBackend
        # First what is preferred, then what takes the calls that it does not support.
        order = [kinds.FLASH_ATTENTION, kinds.CUDNN_ATTENTION]
        order += [kinds.EFFICIENT_ATTENTION, kinds.MATH]
        # PyTorch 2.6 has no order to set; FlashAttention comes first there.
        has_order = "set_priority" in inspect.signature(attention.sdpa_kernel).parameters
        options = {"set_priority": True} if has_order else {}
        self._undo.enter_context(attention.sdpa_kernel(order, **options))


def set_allocator(settings: str) -> None:
    newer = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    (newer or torch.cuda.memory._set_allocator_settings)(settings)

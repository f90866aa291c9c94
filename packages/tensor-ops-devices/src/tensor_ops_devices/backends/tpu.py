"""TPUs, through torch_xla."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tensor_ops import BackendError, BackendFallbackWarning
from tensor_ops.extension import warn_caller
from tensor_ops_devices.backends.base import Backend, without_effect
from tensor_ops_devices.backends.monitor import MemoryMonitor
from tensor_ops_devices.backends.runtimes import Runtime, XlaRuntime
from tensor_ops_devices.hardware import xla
from tensor_ops_devices.hardware.config import TPUCompilationMode, TPUConfig
from tensor_ops_devices.hardware.detector import HardwareType, probe
from tensor_ops_devices.hardware.profile import MB
from tensor_ops_devices.validation.tpu import TPUTarget, check_settings

__all__ = ["TPUBackend"]

_DISK_CACHE = "XLA_PERSISTENT_CACHE_PATH"
_CACHE_SIZE = "XLA_COMPILATION_CACHE_SIZE"
_MONITORING = {
    "allocation_history_retention_seconds",
    "monitoring_interval_seconds",
    "monitoring_duration_seconds",
}


class TPUBackend(Backend):
    """A TPU, with the settings ``config.hardware.tpu``.

    Both caches of compiled programs are XLA's, for the whole process, and have to be set before it
    compiles anything; `close` does not change them. See `Backend` for parameters and methods, and
    `TPUConfig` for the settings.

    Without a TPU models are prepared for the CPU, with one warning. Where ``PJRT_DEVICE`` names
    another device of torch_xla, as ``PJRT_DEVICE=CPU``, they are prepared for that one, with a
    warning too: XLA's CPU runs what a TPU would.

    Examples
    --------
    >>> import warnings
    >>> import torch
    >>> from tensor_ops_devices.backends.tpu import TPUBackend
    >>> with warnings.catch_warnings(action="ignore"):  # where there is no TPU
    ...     backend = TPUBackend()
    >>> backend.prepare_model(torch.nn.Linear(4, 2)).weight.device == backend.device
    True
    """

    name = "tpu"
    _settings: TPUConfig

    def monitor(
        self,
        *,
        interval_seconds: float | None = None,
        duration_seconds: float | None = None,
        retention_seconds: float | None = None,
    ) -> MemoryMonitor:
        """Return a context manager that samples `get_memory_stats` in the background.

        What is not given comes from the settings. Its end warns with MemoryBudgetWarning when more
        than `TPUConfig.memory_fraction` of the memory was in use.

        Parameters
        ----------
        interval_seconds, duration_seconds, retention_seconds : float or None

        Returns
        -------
        tensor_ops_devices.backends.monitor.MemoryMonitor
        """
        settings = self._settings
        limited = settings.memory_fraction is not None and not self.is_fallback
        return MemoryMonitor(
            self.get_memory_stats,
            interval_seconds=interval_seconds or settings.monitoring_interval_seconds,
            duration_seconds=duration_seconds or settings.monitoring_duration_seconds,
            retention_seconds=retention_seconds or settings.allocation_history_retention_seconds,
            budget_mb=self._budget() / MB if limited else None,
        )

    def _find(self) -> Runtime | str:
        found = probe(HardwareType.TPU)
        if not isinstance(found, str):
            self._target = TPUTarget.of(found)
            self._set_caches()
            return XlaRuntime()
        other = xla.chosen_device()
        if other in (None, "TPU") or not xla.is_installed():
            return found
        if (broken := xla.why_not_importable()) is not None:
            return broken
        self._target = TPUTarget(f"XLA's {other}", None, None, None, False)
        self._set_caches()
        try:
            runtime = XlaRuntime()
        except Exception as error:  # of a device that does not start
            return f"{found}, and torch_xla cannot use that device: {type(error).__name__}: {error}"
        changed = self._settings.changed()
        ignored = {key: changed[key] for key in changed if key in ("version", "topology")}
        warn_caller(
            f"TPUBackend: {found}. Models run on that device of XLA instead"
            f"{without_effect(ignored)}",
            BackendFallbackWarning,
        )
        return runtime

    def _configure(self) -> None:
        self._warn_or_raise(check_settings(self._settings, self._target))
        self._set_precision()

    def _settings_without_effect(self) -> dict[str, Any]:
        changed = super()._settings_without_effect()
        return {key: value for key, value in changed.items() if key not in _MONITORING}

    def _convert(self, model: nn.Module) -> nn.Module:
        if self._settings.memory_fraction is not None:
            self._check_size(model)
        if self._settings.compilation_mode is TPUCompilationMode.TORCH_XLA:
            return model
        compiled: nn.Module = torch.compile(model, backend="openxla")
        return compiled

    def _check_size(self, model: nn.Module) -> None:
        tensors = {id(each): each for each in (*model.parameters(), *model.buffers())}
        needed, budget = sum(each.nbytes for each in tensors.values()), self._budget()
        if needed > budget:
            raise BackendError(
                f"TPUBackend: parameters and buffers take {needed / MB:.1f} MB, memory_fraction="
                f"{self._settings.memory_fraction} allows {budget / MB:.1f} MB; raise it, or set "
                "precision='bfloat16' with mixed_precision=False"
            )

    def _budget(self) -> float:
        return self.runtime.memory()["total"] * (self._settings.memory_fraction or 1)

    def _set_caches(self) -> None:
        """Set the caches of XLA, which reads them from the environment when it first compiles."""
        settings = self._settings
        wanted = {}
        if settings.enable_xla_cache:
            # As tensor_ops names its folders on Linux, the only system that has torch_xla.
            folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
            own = os.path.join(folder, "tensor-ops", "xla")
            wanted[_DISK_CACHE] = ("enable_xla_cache", os.environ.get(_DISK_CACHE) or own)
        if settings.cache_max_size is not None:
            wanted[_CACHE_SIZE] = ("cache_max_size", str(settings.cache_max_size))
        for variable, (name, value) in wanted.items():
            present = os.environ.get(variable)
            if present is not None and present != value:
                raise BackendError(
                    f"TPUBackend: {name} asks for {value}, but {variable}={present}; change one of "
                    "them"
                )
            if present is None and _xla_has_compiled():
                raise BackendError(
                    f"TPUBackend: {name} comes too late, XLA has computed in this process already; "
                    "make the backend before anything else uses XLA"
                )
        for variable, (name, value) in wanted.items():
            if name == "cache_max_size":
                os.environ[variable] = value
            elif variable not in os.environ:
                import torch_xla.runtime as xr

                Path(value).mkdir(parents=True, exist_ok=True)
                xr.initialize_cache(value)


def _xla_has_compiled() -> bool:
    import torch_xla

    return bool(torch_xla._XLAC._xla_computation_cache_is_initialized())

"""The base of all backends."""

from __future__ import annotations

import contextlib
import copy
import enum
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from tensor_ops import BackendError, BackendFallbackWarning, BackendUnavailableError
from tensor_ops.extension import warn_caller
from tensor_ops_devices.backends.float8 import from_float8
from tensor_ops_devices.backends.monitor import MemoryMonitor
from tensor_ops_devices.backends.moving import MovingLoader, map_tensors, move_model
from tensor_ops_devices.backends.precision import autocast_always, autocast_no_more
from tensor_ops_devices.backends.runtimes import HostRuntime, Runtime
from tensor_ops_devices.hardware.config import KernelPyTorchConfig
from tensor_ops_devices.hardware.detector import HardwareType, probe
from tensor_ops_devices.hardware.profile import MB
from tensor_ops_devices.hardware.settings import Config
from tensor_ops_devices.swapping import why_no_swapping
from tensor_ops_devices.validation.report import Status, ValidationCheck, raise_failed

__all__ = ["Backend", "without_effect"]


class Backend:
    """A device that models are prepared for.

    Without its hardware a backend prepares models for the CPU, and says so once, when it is made.

    Parameters
    ----------
    config : KernelPyTorchConfig, optional
        Settings; the default ones leave PyTorch as it is.
    fallback : bool
        False raises where the hardware is missing.

    Attributes
    ----------
    name : str
        "nvidia", "tpu", "amd", "xpu", "mps" or "cpu".
    config : KernelPyTorchConfig
        What was given. Settings that are assigned later have no effect on the backend, and the next
        model that is prepared warns of them.
    device : torch.device
        Where models and data are brought to.
    is_fallback : bool
        Whether that is the CPU for want of the hardware.
    reason : str or None
        Why the hardware cannot be used; None if it can.
    swap_report : tensor_ops_torch.modules.SwapReport or None
        What `prepare_model_with_custom_kernels` did last.

    Raises
    ------
    tensor_ops.BackendUnavailableError
        If the hardware is missing and `fallback` is False.
    tensor_ops.BackendError
        If the hardware cannot do what `config` asks for.

    Warns
    -----
    tensor_ops.BackendFallbackWarning
        If the hardware is missing, with the settings that have no effect then.
    """

    name: ClassVar[str]
    _runtime_class: ClassVar[type[Runtime]]

    def __init__(self, config: KernelPyTorchConfig | None = None, *, fallback: bool = True) -> None:
        if config is None:
            config = KernelPyTorchConfig()
        if not isinstance(config, KernelPyTorchConfig):
            raise TypeError(
                f"{type(self).__name__}: config is a {type(config).__name__}, expected a "
                "KernelPyTorchConfig; settings of one kind of hardware go into config.hardware"
            )
        self.config = config
        # As they are now: what is assigned later is told of, not half applied.
        self._settings: Any = self._settings_of(config)
        self.reason: str | None = None
        self.swap_report: Any = None
        self._undo = contextlib.ExitStack()
        self._dtype: torch.dtype | None = None  # what whole models are converted to
        self._autocast: torch.dtype | None = None
        try:
            found = self._find()
            if isinstance(found, str):
                self._fall_back(found, fallback)
                found = HostRuntime()
            self.runtime: Runtime = found
            if not self.is_fallback:
                self._configure()
        except BaseException:
            self._undo.close()
            raise

    @property
    def device(self) -> torch.device:
        """Where models and data are brought to."""
        return self.runtime.device

    @property
    def is_fallback(self) -> bool:
        """Whether models run on the CPU for want of the hardware."""
        return self.reason is not None

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """Bring a model to the device, in place, and apply the settings to it.

        What another backend has prepared is undone first, but for the dtype of a model that was
        converted as a whole. Parameters that modules share stay shared. As after ``Module.to``,
        an optimizer must be made afterwards.

        Parameters
        ----------
        model : torch.nn.Module

        Returns
        -------
        torch.nn.Module
            The same model, unless the settings say otherwise (`TPUConfig.compilation_mode`).

        Raises
        ------
        TypeError
            If `model` is no module.
        tensor_ops.BackendError
            If the device cannot do what the settings ask for.
        """
        self._place(model)
        return self._finished(model)

    def prepare_model_with_custom_kernels(
        self, model: nn.Module, strict: bool = False
    ) -> nn.Module:
        """Do what `prepare_model` does, and let norms, activations and MLPs run on tensor_ops.

        `tensor_ops_torch.modules.swap_modules` says which; its report is kept as `swap_report`.
        `tensor_ops_torch.modules.restore_model` undoes it.

        Parameters
        ----------
        model : torch.nn.Module
        strict : bool
            Raise where a module that could be swapped is not.

        Returns
        -------
        torch.nn.Module

        Raises
        ------
        tensor_ops.BackendError
            If `strict` and tensor_ops has no kernels for the device, or tensor_ops_torch is not
            installed.

        Warns
        -----
        tensor_ops.BackendFallbackWarning
            In these cases without `strict`: the model is only prepared.
        """
        self._place(model)
        problem: str | None = f"tensor_ops has no kernels for {self.device.type} devices"
        if self.runtime.has_kernels:
            problem = why_no_swapping()
        if problem is None:
            from tensor_ops_torch.modules import swap_modules

            # Before float8, which no op takes.
            self.swap_report = swap_modules(model, strict=strict)
            return self._finished(model)
        message = f"{type(self).__name__}: {problem}"
        if strict:
            raise BackendError(f"{message}; call prepare_model, or pass strict=False")
        warn_caller(
            f"{message}. The modules of the model stay as they are",
            BackendFallbackWarning,
        )
        return self._finished(model)

    def prepare_data(self, data: Any) -> Any:
        """Bring tensors to the device, and floating-point ones to the dtype of converted models.

        Parameters
        ----------
        data : tensor, or dict, list, tuple or DataLoader of them
            What is no tensor in them stays as it is.

        Returns
        -------
        object
            Of the same kind; for a DataLoader, an iterable of its batches, brought to the device
            one at a time.

        Examples
        --------
        >>> import torch
        >>> from tensor_ops_devices.backends.cpu import CPUBackend
        >>> CPUBackend().prepare_data({"x": torch.ones(2), "names": ["a", "b"]})
        {'x': tensor([1., 1.]), 'names': ['a', 'b']}
        """
        if isinstance(data, torch.utils.data.DataLoader):
            return MovingLoader(data, self.prepare_data)
        return map_tensors(data, self._moved)

    def get_memory_stats(self) -> dict[str, float]:
        """Return the memory of the device, in MB (2**20 bytes).

        Returns
        -------
        dict
            ``allocated`` by tensors, ``reserved`` by the allocator, the ``peak`` of allocated, the
            ``total`` of the device and what is ``free``. On the CPU, those of the process: its
            resident memory is what is allocated, and what it may use is the total.

        Examples
        --------
        >>> from tensor_ops_devices.backends.cpu import CPUBackend
        >>> sorted(CPUBackend().get_memory_stats())
        ['allocated', 'free', 'peak', 'reserved', 'total']
        """
        return {key: round(value / MB, 3) for key, value in self.runtime.memory().items()}

    def synchronize(self) -> None:
        """Wait until all work of the device is done: what is timed ends here."""
        self.runtime.synchronize()

    def empty_cache(self) -> None:
        """Give memory that no tensor uses back to the device."""
        self.runtime.empty_cache()

    def monitor(
        self,
        *,
        interval_seconds: float = 1.0,
        duration_seconds: float | None = None,
        retention_seconds: float | None = None,
    ) -> MemoryMonitor:
        """Return a context manager that samples `get_memory_stats` in the background.

        Parameters
        ----------
        interval_seconds : float
        duration_seconds : float or None
            When to stop by itself.
        retention_seconds : float or None
            For how long samples are kept.

        Returns
        -------
        tensor_ops_devices.backends.monitor.MemoryMonitor
        """
        return MemoryMonitor(
            self.get_memory_stats,
            interval_seconds=interval_seconds,
            duration_seconds=duration_seconds,
            retention_seconds=retention_seconds,
        )

    def close(self) -> None:
        """Undo what the settings changed for the whole process; also at the end of a ``with``.

        Backends that are in use at the same time are closed in reverse order. Prepared models stay
        as they are.
        """
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        note = f", for want of the hardware: {self.reason}" if self.is_fallback else ""
        return f"<{type(self).__name__} on {self.device}{note}>"

    def _find(self) -> Runtime | str:
        """Return the device, or why there is none."""
        found = probe(HardwareType(self.name))
        return found if isinstance(found, str) else self._runtime_class()

    def _configure(self) -> None:
        """Apply the settings to the process. Backends without settings have nothing to do."""

    def _set_precision(self) -> None:
        precision = self._settings.precision
        dtype = None if precision is None else getattr(torch, precision)
        if self._settings.converts_model:
            self._dtype = dtype
        else:
            self._autocast = dtype

    def _settings_without_effect(self) -> dict[str, Any]:
        """Return the settings that a CPU has no use for."""
        return {} if self._settings is None else self._settings.changed()

    def _convert(self, model: nn.Module) -> nn.Module:
        """Apply the settings to a model that is on the device, and return what the user is given.

        Most backends have nothing to do.
        """
        return model

    def _place(self, model: nn.Module) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"{type(self).__name__}: model is a {type(model).__name__}, expected a "
                "torch.nn.Module"
            )
        self._warn_of_changes()
        autocast_no_more(model)
        from_float8(model)
        move_model(model, self.device, self._dtype)

    def _settings_of(self, config: KernelPyTorchConfig) -> Config | None:
        """Return a copy of the settings of this backend, None if there are none."""
        return copy.copy(getattr(config.hardware, self.name, None))

    def _warn_of_changes(self) -> None:
        now = self._settings_of(self.config)
        if now == self._settings:
            return
        names = ", ".join(key for key in vars(now) if vars(now)[key] != vars(self._settings)[key])
        warn_caller(
            f"{type(self).__name__}: {names} changed after the backend was made, which has no "
            "effect on it; make another one",
            RuntimeWarning,
        )

    def _finished(self, model: nn.Module) -> nn.Module:
        if self._autocast is not None:
            autocast_always(model, self.device.type, self._autocast)
        return model if self.is_fallback else self._convert(model)

    def _moved(self, tensor: Tensor) -> Tensor:
        dtype = self._dtype if tensor.is_floating_point() else None
        at_once = self.device.type == "cuda" and tensor.is_pinned()
        return tensor.to(self.device, dtype=dtype, non_blocking=at_once)

    def _fall_back(self, reason: str, fallback: bool) -> None:
        label = type(self).__name__
        if not fallback:
            raise BackendUnavailableError(f"{label}: {reason}", self.name)
        self.reason = reason
        ignored = self._settings_without_effect()
        warn_caller(
            f"{label}: {reason}. Models run on the CPU instead{without_effect(ignored)}",
            BackendFallbackWarning,
        )

    def _warn_or_raise(self, checks: list[ValidationCheck]) -> None:
        """Raise for what the device cannot do, and warn of what it does not do as expected."""
        raise_failed(type(self).__name__, tuple(checks))
        for check in checks:
            if check.status is Status.WARNING:
                warn_caller(f"{type(self).__name__}: {check}", RuntimeWarning)


def without_effect(settings: dict[str, Any]) -> str:
    """Return the end of a warning that names settings, nothing if there are none."""
    plain = {
        key: value.value if isinstance(value, enum.Enum) else value
        for key, value in settings.items()
    }
    words = ", ".join(f"{key}={value!r}" for key, value in plain.items())
    return f"; without effect there: {words}" if words else ""

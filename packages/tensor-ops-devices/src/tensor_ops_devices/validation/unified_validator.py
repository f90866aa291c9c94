"""Checks of a model and the settings for a kind of hardware, before they are taken there."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tensor_ops import BackendError
from tensor_ops_devices.hardware.config import (
    KernelPyTorchConfig,
    NVIDIAConfig,
    TPUConfig,
)
from tensor_ops_devices.hardware.detector import HardwareType, probe
from tensor_ops_devices.hardware.profile import HardwareProfile
from tensor_ops_devices.swapping import why_no_swapping
from tensor_ops_devices.validation import nvidia, tpu
from tensor_ops_devices.validation.memory import check_nvidia_memory, check_tpu_memory
from tensor_ops_devices.validation.model import ModelFacts
from tensor_ops_devices.validation.nvidia import NVIDIATarget
from tensor_ops_devices.validation.operators import check_operators
from tensor_ops_devices.validation.report import (
    ValidationCheck,
    ValidationReport,
    failed,
    passed,
    skipped,
    warning,
)
from tensor_ops_devices.validation.tpu import TPUTarget

__all__ = ["UnifiedValidator", "ValidationReport"]

_QUANTIZED = "is quantized with kernels that only CPUs have"
# bfloat16 is what matrix units take; float32 they compute from parts.
_ON_TPU = {torch.bfloat16, torch.float32, torch.float16}


class UnifiedValidator:
    """Checks models and settings against kinds of hardware, and reports what will not work.

    Where the hardware is here, it is asked. Where it is not, the generation that the settings name
    is taken for it (`NVIDIAConfig.architecture`, `TPUConfig.version`), and what needs the hardware
    itself is skipped, and listed as such. Nothing is changed, and models stay where they are.

    Parameters
    ----------
    config : KernelPyTorchConfig, optional

    Examples
    --------
    >>> import torch
    >>> from tensor_ops_devices.hardware.config import KernelPyTorchConfig, TPUVersion
    >>> from tensor_ops_devices.validation.unified_validator import UnifiedValidator
    >>> config = KernelPyTorchConfig()
    >>> config.hardware.tpu.version = TPUVersion.V5E
    >>> report = UnifiedValidator(config).validate_tpu_compatibility(torch.nn.Linear(2, 2).double())
    >>> report.ok
    False
    >>> print(report.failed[0])
    dtypes: weight is torch.float64, which TPUs do not compute; convert it: model.float()
    """

    def __init__(self, config: KernelPyTorchConfig | None = None) -> None:
        self.config = _whole(config) if config is not None else KernelPyTorchConfig()

    def validate_nvidia_compatibility(
        self,
        model: nn.Module,
        config: KernelPyTorchConfig | NVIDIAConfig | None = None,
        *,
        example_inputs: Any = None,
    ) -> ValidationReport:
        """Check a model and the settings for an NVIDIA GPU.

        Parameters
        ----------
        model : torch.nn.Module
        config : KernelPyTorchConfig or NVIDIAConfig, optional
            Instead of that of the validator.
        example_inputs : tensor, tuple of arguments or dict of keyword arguments, optional
            To call the model with, where it is, once, in eval mode.

        Returns
        -------
        ValidationReport
        """
        _check_model(model)
        settings = (
            config if isinstance(config, NVIDIAConfig) else self._settings(config).hardware.nvidia
        )
        target, checks = _nvidia_device(settings)
        facts = ModelFacts.of(model)
        checks += nvidia.check_settings(settings, target)
        checks += _nvidia_dtypes(facts, target)
        if settings.fp8_enabled:
            checks += [_fp8_layers(facts)]
        if settings.flash_attention_version != "auto" and facts.is_eager_attention:
            checks += [
                warning(
                    "attention",
                    "the model computes attention itself, which flash_attention_version is not for",
                    "model.set_attn_implementation('sdpa')",
                )
            ]
        checks += [check_nvidia_memory(model, facts, settings, target)]
        # One is enough: whatever is wrong, the model has to be given otherwise.
        checks += _modules(
            facts, (facts.quantized, _QUANTIZED, "give the model that was not quantized")
        )[:1]
        checks += check_operators(model, facts, example_inputs, "CUDA")
        checks += [_custom_kernels(model, facts, target)]
        return ValidationReport(target.text, tuple(checks))

    def validate_tpu_compatibility(
        self,
        model: nn.Module,
        config: KernelPyTorchConfig | TPUConfig | None = None,
        *,
        example_inputs: Any = None,
    ) -> ValidationReport:
        """Check a model and the settings for a TPU.

        Parameters
        ----------
        model : torch.nn.Module
        config : KernelPyTorchConfig or TPUConfig, optional
            Instead of that of the validator.
        example_inputs : tensor, tuple of arguments or dict of keyword arguments, optional
            To call the model with, where it is, once, in eval mode.

        Returns
        -------
        ValidationReport
        """
        _check_model(model)
        settings = config if isinstance(config, TPUConfig) else self._settings(config).hardware.tpu
        target, checks = _tpu_device(settings)
        facts = ModelFacts.of(model)
        checks += tpu.check_settings(settings, target)
        checks += _tpu_dtypes(facts, settings)
        checks += [check_tpu_memory(model, facts, settings, target)]
        checks += _modules(
            facts,
            (facts.quantized, _QUANTIZED, "do not quantize it"),
            (
                facts.cuda_only,
                "calls CUDA kernels of its own",
                "replace it by PyTorch's own module",
            ),
            (facts.sparse, "has sparse gradients, which XLA does not have", "set sparse=False"),
        )
        checks += check_operators(model, facts, example_inputs, "XLA")
        checks += [
            skipped(
                "custom kernels",
                "tensor_ops has no kernels for TPUs; XLA compiles PyTorch's own functions",
                "call prepare_model",
            )
        ]
        return ValidationReport(target.name, tuple(checks))

    def _settings(self, config: Any) -> KernelPyTorchConfig:
        return self.config if config is None else _whole(config)


def _whole(config: Any) -> KernelPyTorchConfig:
    if not isinstance(config, KernelPyTorchConfig):
        raise TypeError(
            f"UnifiedValidator: config is a {type(config).__name__}, expected a "
            "KernelPyTorchConfig, or to a validate method the settings of its hardware"
        )
    return config


def _check_model(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"UnifiedValidator: model is a {type(model).__name__}, expected a torch.nn.Module"
        )


def _nvidia_device(settings: NVIDIAConfig) -> tuple[NVIDIATarget, list[ValidationCheck]]:
    try:
        found = probe(HardwareType.NVIDIA, settings.device_id)
    except BackendError as error:
        todo = "choose one that is there"
        return NVIDIATarget.wanted(settings.architecture), [failed("device", str(error), todo)]
    if isinstance(found, HardwareProfile):
        target = NVIDIATarget.of(found)
        return target, [passed("device", f"{target.text} is here")]
    return NVIDIATarget.wanted(settings.architecture), [_absent(found, "the GPU")]


def _tpu_device(settings: TPUConfig) -> tuple[TPUTarget, list[ValidationCheck]]:
    found = probe(HardwareType.TPU)
    if isinstance(found, HardwareProfile):
        target = TPUTarget.of(found)
        return target, [passed("device", f"{target.name} is here")]
    return TPUTarget.wanted(settings.version), [_absent(found, "the TPU")]


def _absent(reason: str, place: str) -> ValidationCheck:
    return skipped("device", reason, f"run it on {place} to check what is there")


def _nvidia_dtypes(facts: ModelFacts, target: NVIDIATarget) -> list[ValidationCheck]:
    found = []
    capability = target.capability
    for dtype, name in facts.dtypes.items():
        if dtype in (torch.float8_e4m3fn, torch.float8_e5m2) and capability and capability < (8, 9):
            todo = "convert it: model.to(torch.bfloat16)"
            found.append(failed("dtypes", f"{name} is {dtype}, which needs sm_89", todo))
        elif dtype is torch.bfloat16 and capability and capability < (8, 0):
            found.append(
                warning(
                    "dtypes", f"{name} is {dtype}, which {target.text} emulates", "model.half()"
                )
            )
        elif dtype in (torch.float64, torch.complex128):
            found.append(
                warning(
                    "dtypes",
                    f"{name} is {dtype}, which most GPUs compute at 1/32 to 1/64 of the speed",
                    "convert it where the precision is not needed: model.float()",
                )
            )
    return found or [passed("dtypes", _names(facts))]


def _tpu_dtypes(facts: ModelFacts, settings: TPUConfig) -> list[ValidationCheck]:
    found = []
    for dtype, name in facts.dtypes.items():
        if dtype.is_complex or (dtype.is_floating_point and dtype not in _ON_TPU):
            if settings.precision is not None and settings.mixed_precision is False:
                continue  # converted as a whole
            todo = "convert it: model.float()"
            found.append(failed("dtypes", f"{name} is {dtype}, which TPUs do not compute", todo))
        elif dtype is torch.float16:
            found.append(
                warning(
                    "dtypes",
                    f"{name} is {dtype}, which TPUs compute as float32",
                    "convert it to their own 16 bits: model.bfloat16()",
                )
            )
    return found or [passed("dtypes", _names(facts))]


def _names(facts: ModelFacts) -> str:
    return ", ".join(str(each) for each in facts.dtypes) or "no parameters"


def _fp8_layers(facts: ModelFacts) -> ValidationCheck:
    fit = [name for name, reason in facts.linears.items() if reason is None]
    left = {name: reason for name, reason in facts.linears.items() if reason is not None}
    if not facts.linears:
        return warning("fp8 layers", "the model has no nn.Linear", "set fp8_enabled=False")
    if left:
        name, reason = next(iter(left.items()))
        return warning(
            "fp8 layers",
            f"{len(fit)} of {len(facts.linears)} nn.Linear multiply float8; not {name}: {reason}",
            "pad what matters to a multiple of 16",
        )
    return passed("fp8 layers", f"all {len(fit)} nn.Linear multiply float8")


def _modules(facts: ModelFacts, *wrong: tuple[list[str], str, str]) -> list[ValidationCheck]:
    """Check for modules that are for other hardware: their names, what they do and what to do."""
    found = [failed("modules", f"{names[0]} {does}", todo) for names, does, todo in wrong if names]
    if facts.fixed:
        message = (
            f"{facts.fixed[0]} is TorchScript with weights among its constants, which stay on the "
            "CPU when the model is moved"
        )
        todo = "give the model as it was before torch.jit.freeze, or freeze it on the device"
        found.append(failed("modules", message, todo))
    return found or [passed("modules", "none that is for other hardware only")]


def _custom_kernels(model: nn.Module, facts: ModelFacts, target: NVIDIATarget) -> ValidationCheck:
    """Say what `prepare_model_with_custom_kernels` would swap."""
    name = "custom kernels"
    if target.capability is not None and target.capability < (7, 5):
        todo = "call prepare_model"
        return warning(name, f"tensor_ops has none for {target.text}, only from sm_75 on", todo)
    if facts.lazy is not None:
        return skipped(name, f"{facts.lazy} is not initialized", "call the model once before")
    if (problem := why_no_swapping()) is not None:
        return skipped(name, problem, "call prepare_model")
    from tensor_ops_torch.modules import swap_report

    try:
        entries = swap_report(model).entries
    except Exception as error:  # one module that cannot be looked at must not hide all else
        message = f"not known, {type(error).__name__}: {error}"
        return skipped(name, message, "call swap_report(model) to see where")
    swapped = [each for each in entries if each.reason is None]
    if not entries:
        return passed(name, "the model has no module that tensor_ops would compute")
    text = f"{len(swapped)} of {len(entries)} modules would run on tensor_ops"
    if left := [each for each in entries if each.reason is not None]:
        text += f"; not {left[0].name or 'the model'}: {left[0].reason}"
    return passed(name, text)

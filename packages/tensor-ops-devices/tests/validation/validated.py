"""Models, and what the validator says of them."""

from torch import nn

from tensor_ops_devices.hardware.config import (
    HardwareConfig,
    KernelPyTorchConfig,
    NVIDIAConfig,
    TPUConfig,
)
from tensor_ops_devices.validation.unified_validator import UnifiedValidator


def model():
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 16)).eval()


def big(gigabytes):
    """A model of that size, without its memory."""
    return nn.Linear(2**16, int(gigabytes * 2**12), bias=False, device="meta").eval()


def nvidia(network, example_inputs=None, **settings):
    config = KernelPyTorchConfig(hardware=HardwareConfig(nvidia=NVIDIAConfig(**settings)))
    validator = UnifiedValidator(config)
    return validator.validate_nvidia_compatibility(network, example_inputs=example_inputs)


def tpu(network, example_inputs=None, **settings):
    config = KernelPyTorchConfig(hardware=HardwareConfig(tpu=TPUConfig(**settings)))
    validator = UnifiedValidator(config)
    return validator.validate_tpu_compatibility(network, example_inputs=example_inputs)


def find(report, name):
    """Return the outcomes of a check, as "status: message"."""
    return [f"{each.status}: {each.message}" for each in report.checks if each.name == name]

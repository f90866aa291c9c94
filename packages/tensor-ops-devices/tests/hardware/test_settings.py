"""The settings: what they take, and that nothing else gets in."""

import copy
import dataclasses
import pickle

import pytest

import tensor_ops
from tensor_ops_devices.hardware.config import (
    HardwareConfig,
    KernelPyTorchConfig,
    NVIDIAArchitecture,
    NVIDIAConfig,
    TPUCompilationMode,
    TPUConfig,
    TPUTopology,
    TPUVersion,
)

# For each setting what it takes, and what it refuses.
NVIDIA = {
    "architecture": ([NVIDIAArchitecture.HOPPER, "ampere"], ["hoper", 9, None, TPUVersion.V4]),
    "device_id": ([0, 7], [-1, 0.0, "0", True, None]),
    "fp8_enabled": ([True, False], [1, "true", None]),
    "flash_attention_version": (["auto", "2", "3"], [3, "4", "", None]),
    "tensor_core_version": ([1, 5, None], [0, 6, 4.0, True]),
    "memory_pool_init_mb": ([0, 1024], [-1, 1e3, "1024", None]),
    "memory_growth_enabled": ([True, False, None], [0, "no"]),
    "max_memory_fraction": ([0.9, 1, None], [0, -0.1, 1.01, float("nan"), "0.9", True]),
    "precision": (["float32", "float16", "bfloat16", None], ["fp16", "float64", "", 16]),
    "allow_fp32": ([True, False], [0, None]),
}
TPU = {
    "version": ([TPUVersion.V5E, "v7"], ["v5", "V5E", None]),
    "topology": ([TPUTopology.SINGLE, "superpod"], ["one", None]),
    "compilation_mode": ([TPUCompilationMode.TORCH_COMPILE, "torch_xla"], ["eager", None]),
    "enable_xla_cache": ([True, False], ["yes", None]),
    "cache_max_size": ([1, 100, None], [0, 1.0, "100"]),
    "precision": (["bfloat16", "float32", None], ["float64", "float16", 16]),
    "mixed_precision": ([True, False, None], [1]),
    "memory_fraction": ([0.9, None], [0, 2, float("inf")]),
    "allocation_history_retention_seconds": ([3600, 0.5, None], [0, -1, float("nan")]),
    "monitoring_interval_seconds": ([1.0, 1], [0, None, "1"]),
    "monitoring_duration_seconds": ([60.0, None], [0, float("inf")]),
}
CASES = [
    (kind, name, *values)
    for kind, table in ((NVIDIAConfig, NVIDIA), (TPUConfig, TPU))
    for name, values in table.items()
]


@pytest.mark.parametrize(("kind", "table"), [(NVIDIAConfig, NVIDIA), (TPUConfig, TPU)])
def test_every_setting_is_tested_here(kind, table):
    assert [field.name for field in dataclasses.fields(kind)] == list(table)


@pytest.mark.parametrize(("kind", "name", "taken", "refused"), CASES)
def test_values_are_checked_on_construction_and_assignment(kind, name, taken, refused):
    for value in taken:
        config = kind()
        setattr(config, name, value)
        assert getattr(config, name) == value
        assert config == kind(**{name: value})
    for value in refused:
        config = kind()
        before = getattr(config, name)
        with pytest.raises(tensor_ops.ConfigError, match=f"{kind.__name__}.{name} is .*expected"):
            setattr(config, name, value)
        assert getattr(config, name) is before
        with pytest.raises(tensor_ops.ConfigError, match=f"{kind.__name__}.{name} is "):
            kind(**{name: value})


@pytest.mark.parametrize(("kind", "name", "taken", "refused"), CASES)
def test_what_is_not_the_default_is_what_was_asked_for(kind, name, taken, refused):
    default = getattr(kind(), name)
    for value in taken:
        asked = kind(**{name: value}).changed()
        assert asked == ({} if value == default else {name: value})


def test_values_of_enumerations_become_members():
    assert NVIDIAConfig(architecture="hopper").architecture is NVIDIAArchitecture.HOPPER


def test_a_name_that_is_no_setting_is_not_taken():
    config = KernelPyTorchConfig()
    with pytest.raises(AttributeError, match=r"fp8 is no setting; .*fp8_enabled"):
        config.hardware.nvidia.fp8 = True
    with pytest.raises(AttributeError, match="did you mean 'memory_fraction'"):
        config.hardware.tpu.memory_fractions = 0.9
    with pytest.raises(TypeError, match="fp8"):
        NVIDIAConfig(fp8=True)


def test_an_error_suggests_the_nearest_value():
    with pytest.raises(tensor_ops.ConfigError, match="did you mean 'hopper'"):
        NVIDIAConfig(architecture="hoper")


def test_parts_take_settings_of_their_kind_only():
    nvidia = NVIDIAConfig(fp8_enabled=True)
    config = KernelPyTorchConfig(hardware=HardwareConfig(nvidia=nvidia))
    assert config.hardware.nvidia is nvidia
    with pytest.raises(tensor_ops.ConfigError, match=r"HardwareConfig.nvidia is .*NVIDIAConfig"):
        config.hardware.nvidia = TPUConfig()
    with pytest.raises(tensor_ops.ConfigError, match=r"KernelPyTorchConfig.hardware is "):
        config.hardware = nvidia


def test_configurations_share_nothing():
    first, second = KernelPyTorchConfig(), KernelPyTorchConfig()
    first.hardware.tpu.precision = "bfloat16"
    assert second.hardware.tpu.precision is None
    third = copy.deepcopy(first)
    third.hardware.tpu.precision = "float32"
    assert first.hardware.tpu.precision == "bfloat16"
    assert pickle.loads(pickle.dumps(first)) == first != third

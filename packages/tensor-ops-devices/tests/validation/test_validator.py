"""The validator: what cannot work fails, what is not known is skipped."""

import json

import pytest
import torch
from torch import nn
from validated import big, find, model, nvidia, tpu

import tensor_ops
from tensor_ops_devices.backends.nvidia import NVIDIABackend
from tensor_ops_devices.hardware.config import (
    HardwareConfig,
    KernelPyTorchConfig,
    NVIDIAConfig,
)
from tensor_ops_devices.hardware.profile import GB
from tensor_ops_devices.validation.report import Status, ValidationCheck, ValidationReport
from tensor_ops_devices.validation.unified_validator import UnifiedValidator

FLASH, POOL = "flash_attention_version", "memory_pool_init_mb"
# The hardware, the settings for it, and the check that fails.
IMPOSSIBLE_ON_NVIDIA = {
    "fp8 on sm_80": ("A100", {"fp8_enabled": True}, {"fp8_enabled"}),
    "fp8 on sm_75": ("T4", {"fp8_enabled": True}, {"fp8_enabled"}),
    "FlashAttention-3 on Ampere": ("A100", {FLASH: "3"}, {FLASH}),
    "FlashAttention-3 on Blackwell": ("B200", {FLASH: "3"}, {FLASH}),
    "FlashAttention-2 on Turing": ("T4", {FLASH: "2"}, {FLASH}),
    "FlashAttention-3 that is not installed": ("H100", {FLASH: "3"}, {FLASH}),
    "another architecture": ("A100", {"architecture": "hopper"}, {"architecture"}),
    "other tensor cores": ("A100", {"tensor_core_version": 4}, {"tensor_core_version"}),
    "older tensor cores": ("V100", {"tensor_core_version": 2}, {"tensor_core_version"}),
    "no such device": ("A100", {"device_id": 3}, {"device"}),
    "a pool larger than the memory": ("A100", {POOL: 90_000}, {POOL}),
    "a pool larger than the fraction": (
        "A100",
        {POOL: 60_000, "max_memory_fraction": 0.5},
        {POOL},
    ),
    "a pool of nothing": (
        "A100",
        {"memory_growth_enabled": False},
        {"memory_growth_enabled", "memory"},
    ),
    "float32 without float32": (
        "A100",
        {"precision": "float32", "allow_fp32": False},
        {"allow_fp32"},
    ),
}


@pytest.mark.parametrize("case", IMPOSSIBLE_ON_NVIDIA)
def test_what_a_gpu_cannot_do_fails(case, gpu):
    there, settings, names = IMPOSSIBLE_ON_NVIDIA[case]
    gpu(there)
    report = nvidia(model(), **settings)
    assert not report.ok
    assert {each.name for each in report.failed} == names
    assert all(each.what_to_do for each in report.failed)
    with pytest.raises(tensor_ops.BackendError, match=min(names)):
        report.raise_if_failed()


def test_what_a_gpu_can_do_passes(gpu):
    gpu("H100")
    settings = {
        "architecture": "hopper",
        "fp8_enabled": True,
        "flash_attention_version": "2",
        "tensor_core_version": 4,
        "memory_pool_init_mb": 1024,
        "memory_growth_enabled": True,
        "max_memory_fraction": 0.9,
        "precision": "float16",
    }
    report = nvidia(model(), **settings)
    report.raise_if_failed()
    assert report.ok
    assert report.warnings == []
    assert {*settings, "device", "dtypes", "fp8 layers", "memory", "modules"} <= {
        each.name for each in report.passed
    }
    assert report.target == "NVIDIA H100 80GB HBM3 (sm_90)"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize(
    ("architecture", "ok"), [("turing", False), ("ampere", False), ("ada", True), ("hopper", True)]
)
def test_without_a_gpu_the_architecture_that_is_asked_for_decides(architecture, ok):
    report = nvidia(model(), architecture=architecture, fp8_enabled=True)
    assert report.ok is ok
    assert {"device", "architecture", "memory"} <= {each.name for each in report.skipped}
    assert all(each.what_to_do for each in report.skipped)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_and_without_a_name_for_one_nothing_is_promised():
    report = nvidia(model(), fp8_enabled=True, flash_attention_version="3", precision="float16")
    skipped = {each.name for each in report.skipped}
    assert {"device", "fp8_enabled", "flash_attention_version", "precision"} <= skipped
    assert report.ok


def test_memory_is_held_against_the_gpu(gpu):
    gpu("A100")
    assert find(nvidia(big(79)), "memory")[0].startswith("passed: parameters and buffers take 808")
    assert find(nvidia(big(81)), "memory")[0].startswith("failed: ")
    assert find(nvidia(big(50), max_memory_fraction=0.5), "memory")[0].startswith("failed: ")
    assert find(nvidia(big(81), precision="bfloat16", allow_fp32=False), "memory")[0].startswith(
        "passed"
    )
    (kept,) = find(nvidia(big(1), memory_growth_enabled=False, memory_pool_init_mb=512), "memory")
    assert kept.startswith("failed: parameters and buffers take 1024.0 MB of 512 MB")
    (trained,) = find(nvidia(big(30).train()), "memory")
    assert trained.startswith("warning: ")
    assert "Adam" in trained
    frozen = big(30).train().requires_grad_(False)
    assert find(nvidia(frozen), "memory")[0].startswith("passed")


@pytest.mark.parametrize(
    ("dtype", "there", "outcome"),
    [
        (torch.float32, "T4", "passed: torch.float32"),
        (torch.bfloat16, "A100", "passed: torch.bfloat16"),
        (torch.bfloat16, "T4", r"warning: 0.weight is torch.bfloat16, which Tesla T4 (sm_75) emul"),
        (torch.float64, "A100", "warning: 0.weight is torch.float64, which most GPUs compute at"),
        (torch.float8_e4m3fn, "A100", "failed: 0.weight is torch.float8_e4m3fn, which needs sm_89"),
        (torch.float8_e4m3fn, "H100", "passed"),
    ],
)
def test_dtypes_on_nvidia(dtype, there, outcome, gpu):
    gpu(there)
    assert find(nvidia(model().to(dtype)), "dtypes")[0].startswith(outcome)


@pytest.mark.parametrize(
    ("network", "outcome"),
    [
        (model(), "passed: all 2 nn.Linear"),
        (nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 5)), "warning: 1 of 2 nn.Linear multiply"),
        (nn.LayerNorm(4), "warning: the model has no nn.Linear"),
    ],
)
def test_layers_for_float8(network, outcome, gpu):
    gpu("H100")
    assert find(nvidia(network, fp8_enabled=True), "fp8 layers")[0].startswith(outcome)
    assert find(nvidia(network), "fp8 layers") == []


def test_attention_that_the_setting_is_not_for(gpu):
    gpu("A100")
    network = model()
    network.config = type("Config", (), {"_attn_implementation": "eager"})()
    assert find(nvidia(network, flash_attention_version="2"), "attention")[0].startswith("warning")
    network.config._attn_implementation = "sdpa"
    assert find(nvidia(network, flash_attention_version="2"), "attention") == []


def test_quantized_modules_are_for_cpus_only(gpu):
    class Quantized(nn.Module):
        pass

    Quantized.__module__ = "torch.ao.nn.quantized.modules.linear"
    gpu("A100")
    assert find(nvidia(nn.Sequential(Quantized())), "modules")[0].startswith("failed: 0 is quant")
    assert find(tpu(nn.Sequential(Quantized())), "modules")[0].startswith("failed: 0 is quant")


def test_custom_kernels_are_none_on_a_tpu_and_on_old_gpus(gpu):
    assert find(tpu(model()), "custom kernels")[0].startswith("skipped: ")
    gpu("V100")
    assert find(nvidia(model()), "custom kernels")[0].startswith("warning: tensor_ops has none for")


def test_custom_kernels_that_would_be_swapped(gpu):
    gpu("H100")
    network = model()
    (outcome,) = find(nvidia(network), "custom kernels")
    assert outcome == "passed: 1 of 1 modules would run on tensor_ops"
    assert type(network[1]) is nn.LayerNorm
    (outcome,) = find(nvidia(nn.Linear(4, 4)), "custom kernels")
    assert outcome == "passed: the model has no module that tensor_ops would compute"


def test_a_configuration_can_be_given_with_the_model():
    validator = UnifiedValidator()
    config = KernelPyTorchConfig()
    config.hardware.nvidia.architecture = "ampere"
    config.hardware.nvidia.fp8_enabled = True
    config.hardware.tpu.version = "v5e"
    for given in (config, config.hardware.nvidia):
        report = validator.validate_nvidia_compatibility(model(), given)
        assert "fp8_enabled" in {each.name for each in report.failed + report.passed}
    for given in (config, config.hardware.tpu):
        assert find(validator.validate_tpu_compatibility(model(), given), "version")
    assert find(validator.validate_nvidia_compatibility(model()), "fp8_enabled") == []
    with pytest.raises(TypeError, match="config is a TPUConfig, expected a KernelPyTorchConfig"):
        validator.validate_nvidia_compatibility(model(), config.hardware.tpu)
    with pytest.raises(TypeError, match="config is a dict"):
        UnifiedValidator({})
    with pytest.raises(TypeError, match=r"model is a dict, expected a torch.nn.Module"):
        validator.validate_tpu_compatibility({})


@pytest.mark.parametrize("case", IMPOSSIBLE_ON_NVIDIA)
def test_what_the_validator_fails_the_backend_refuses(case, gpu):
    there, settings, _ = IMPOSSIBLE_ON_NVIDIA[case]
    gpu(there)
    config = KernelPyTorchConfig(hardware=HardwareConfig(nvidia=NVIDIAConfig(**settings)))
    with pytest.raises(tensor_ops.BackendError):
        NVIDIABackend(config)


def test_a_report_prints_and_is_plain_data():
    report = ValidationReport(
        "a GPU",
        (
            ValidationCheck("dtypes", Status.PASSED, "torch.float32"),
            ValidationCheck("memory", Status.FAILED, "too much", "take less"),
            ValidationCheck("device", Status.SKIPPED, "none", "get one"),
            ValidationCheck("fp8 layers", Status.WARNING, "some", "pad them"),
        ),
    )
    assert str(report).splitlines() == [
        "a GPU: 1 passed, 1 warning, 1 failed, 1 skipped",
        "  failed   memory      too much",
        "                       -> take less",
        "  warning  fp8 layers  some",
        "                       -> pad them",
        "  passed   dtypes      torch.float32",
        "  skipped  device      none",
        "                       -> get one",
    ]
    words = json.loads(json.dumps(report.as_dict()))
    assert words["ok"] is False
    assert words["failed"] == [{"name": "memory", "message": "too much", "what_to_do": "take less"}]
    assert [len(words[key]) for key in ("passed", "warnings", "skipped")] == [1, 1, 1]
    with pytest.raises(tensor_ops.BackendError, match="a GPU: memory: too much; take less"):
        report.raise_if_failed()


def test_sizes_are_counted_once_for_shared_parameters(gpu):
    gpu("A100")
    network = nn.Module()
    network.a = nn.Linear(2**14, 2**14, bias=False, device="meta")
    network.b = nn.Linear(2**14, 2**14, bias=False, device="meta")
    network.b.weight = network.a.weight
    assert "take 1024.0 MB of" in find(nvidia(network.eval()), "memory")[0]
    assert GB == 1024 * 2**20

"""Reports on a generation that is only named, and on models of every kind."""

import io
import re

import pytest
import torch
from torch import nn

from tensor_ops_devices.hardware import detector as hardware_detector
from tensor_ops_devices.hardware.config import NVIDIAArchitecture, NVIDIAConfig, TPUConfig
from tensor_ops_devices.hardware.profile import NVIDIA_MEMORY_GB, HardwareType
from tensor_ops_devices.validation.report import Status, ValidationCheck, ValidationReport
from tensor_ops_devices.validation.unified_validator import UnifiedValidator

VALIDATOR = UnifiedValidator()


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """No GPU is here, on any machine."""
    monkeypatch.setitem(hardware_detector.PROBES, HardwareType.NVIDIA, lambda _: "no GPU is here")


def nvidia(model, inputs=None, **settings):
    config = NVIDIAConfig(**settings)
    return VALIDATOR.validate_nvidia_compatibility(model, config, example_inputs=inputs)


def tpu(model, inputs=None, **settings):
    return VALIDATOR.validate_tpu_compatibility(model, TPUConfig(**settings), example_inputs=inputs)


def big(gigabytes):
    """A model of that size, without its memory."""
    return nn.Linear(2**16, int(gigabytes * 2**12), bias=False, device="meta").eval()


def find(report, name):
    (check,) = [each for each in report.checks if each.name == name]
    return check


@pytest.mark.parametrize("architecture", [each for each in NVIDIAArchitecture if each != "auto"])
def test_what_no_gpu_of_a_generation_can_hold_fails(architecture):
    sizes = NVIDIA_MEMORY_GB[architecture]
    assert list(sizes.values()) == sorted(sizes.values())
    name, most = list(sizes.items())[-1]
    report = nvidia(big(most + 1), architecture=architecture)
    assert not report.ok
    check = find(report, "memory")
    assert check.status is Status.FAILED
    assert f"the largest GPU of {architecture.name}, {name}, has {most} GB" in check.message
    assert check.what_to_do
    assert nvidia(big(most), architecture=architecture).ok


def test_a_model_of_320_gb_fits_no_gpu_that_can_be_named():
    for architecture in NVIDIA_MEMORY_GB:
        assert not nvidia(big(320), architecture=architecture).ok
    check = find(nvidia(big(320)), "memory")
    assert check.status is Status.FAILED
    assert "320.0 GB; the largest GPU that is known, B300, has 288 GB" in check.message


def test_a_model_that_some_device_can_hold_is_not_checked_against_an_unnamed_one():
    for validate, setting in ((nvidia, "NVIDIAConfig.architecture"), (tpu, "TPUConfig.version")):
        check = find(validate(big(160)), "memory")
        assert check.status is Status.SKIPPED
        assert check.message == (
            "parameters and buffers take 163840.0 MB; not checked, the memory is unknown"
        )
        assert setting in check.what_to_do
        check = find(validate(big(160).train()), "memory")
        assert check.status is Status.WARNING
        assert "with gradients and Adam's moments 640.0 GB; the largest" in check.message


@pytest.mark.parametrize(
    ("validate", "settings", "message"),
    [
        (nvidia, {}, "GPU that is known, B300, has 288 GB"),
        (nvidia, {"max_memory_fraction": 0.5}, "288 GB (max_memory_fraction allows 50%)"),
        # A pool may be of any size on paper.
        (nvidia, {"memory_growth_enabled": False, "memory_pool_init_mb": 6_000_000}, "288 GB"),
        (nvidia, {"precision": "float16", "allow_fp32": False}, "take 2560.0 GB"),
        (tpu, {}, "TPU that is known, v7, has 192 GB"),
        (tpu, {"memory_fraction": 0.5}, "192 GB (memory_fraction allows 50%)"),
    ],
)
def test_a_model_of_5_tb_fits_no_device_even_where_none_is_named(validate, settings, message):
    report = validate(big(5 * 1024), **settings)
    assert not report.ok
    check = find(report, "memory")
    assert check.status is Status.FAILED
    assert message in check.message
    assert check.what_to_do


def test_what_only_the_larger_gpus_of_a_generation_hold_is_a_warning():
    check = find(nvidia(big(100), architecture="hopper"), "memory")
    assert check.status is Status.WARNING
    assert "100.0 GB, more than H100 has (80 GB); GH200 has 144 GB" in check.message
    check = find(nvidia(big(79), architecture="hopper"), "memory")
    assert check.status is Status.SKIPPED
    assert "not checked, GPUs of HOPPER differ (H100 80 GB, H200 141 GB, GH200" in check.message
    check = find(nvidia(big(40).train(), architecture="hopper"), "memory")
    assert check.status is Status.WARNING
    assert "with gradients and Adam's moments 160.0 GB" in check.message


def test_settings_of_the_memory_count():
    halved = {"architecture": "hopper", "max_memory_fraction": 0.5}
    check = find(nvidia(big(100), **halved), "memory")
    assert check.status is Status.FAILED
    assert "max_memory_fraction allows 50%" in check.message
    assert find(nvidia(big(30), **halved), "max_memory_fraction").status is Status.SKIPPED
    for pool, status in ((200 * 1024, Status.FAILED), (100 * 1024, Status.SKIPPED)):
        settings = {"architecture": "hopper", "memory_pool_init_mb": pool}
        assert find(nvidia(big(1), **settings), "memory_pool_init_mb").status is status
    only = {"memory_growth_enabled": False, "memory_pool_init_mb": 512}
    assert "of 512 MB" in find(nvidia(big(1), architecture="hopper", **only), "memory").message


@pytest.mark.parametrize(
    ("precision", "allow_fp32", "size"),
    [("float32", True, 100), ("bfloat16", False, 50), ("bfloat16", True, 50), (None, True, 50)],
)
def test_a_conversion_of_the_whole_model_counts(precision, allow_fp32, size):
    settings = {"precision": precision, "allow_fp32": allow_fp32, "architecture": "hopper"}
    check = find(nvidia(big(100).bfloat16(), **settings), "memory")
    assert check.message.startswith(f"parameters and buffers take {size}.0 GB")


def test_tensor_cores_of_what_has_none():
    check = find(
        nvidia(big(1), architecture="pascal", tensor_core_version=1), "tensor_core_version"
    )
    assert (check.status, check.what_to_do) == (Status.FAILED, "set it to None")


class Holder(nn.Module):
    """A model with a child of any kind."""

    def __init__(self, child):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.child = child

    def forward(self, x):
        return self.child(self.first(x))


def scripted(model):
    return torch.jit.script(model)


def traced(model):
    return torch.jit.trace(model, torch.ones(2, 4))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("make", [scripted, traced])
@pytest.mark.parametrize("validate", [nvidia, tpu])
@pytest.mark.parametrize("inputs", [None, torch.ones(2, 4)])
def test_a_torchscript_child_is_checked_as_any_other(make, validate, inputs):
    child = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4)).eval()
    report = validate(Holder(make(child)).eval(), inputs)
    assert report.ok, report
    assert {"dtypes", "memory", "modules", "operators", "custom kernels"} <= {
        each.name for each in report.checks
    }


def saved_and_loaded(model):
    file = io.BytesIO()
    torch.jit.save(model, file)
    file.seek(0)
    return torch.jit.load(file)


FREEZE, INFER = torch.jit.freeze, torch.jit.optimize_for_inference
# A model that PyTorch freezes has no attribute ``training``, unless that is asked for.
FROZEN = {
    "scripted": lambda model, x: FREEZE(torch.jit.script(model)),
    "traced": lambda model, x: FREEZE(torch.jit.trace(model, x)),
    "scripted for inference": lambda model, x: INFER(torch.jit.script(model)),
    "frozen for inference": lambda model, x: INFER(FREEZE(torch.jit.script(model))),
    "with its mode": lambda model, x: FREEZE(torch.jit.script(model), ["training"]),
    "loaded": lambda model, x: saved_and_loaded(FREEZE(torch.jit.script(model))),
}
LAYERS = {
    "linear": (nn.Linear(512, 512), torch.ones(2, 512)),
    # optimize_for_inference leaves no constant but those of oneDNN.
    "convolution": (nn.Conv2d(64, 64, 8), torch.ones(1, 64, 8, 8)),
}


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("kind", FROZEN)
@pytest.mark.parametrize("validate", [nvidia, tpu])
def test_weights_that_torchscript_has_frozen_are_found(validate, kind, layer):
    one, x = LAYERS[layer]
    frozen = FROZEN[kind](nn.Sequential(one, nn.ReLU()).eval(), x)
    before = frozen(x)
    parent = nn.Sequential(nn.Identity(), frozen)
    cases = [(frozen, type(frozen).__name__, None), (frozen, type(frozen).__name__, x)]
    for model, name, inputs in [*cases, (parent, "1", x)]:
        report = validate(model, inputs)
        check = find(report, "modules")
        assert check.status is Status.FAILED
        assert check.message.startswith(f"{name} is TorchScript with weights among its constants")
        # Once, or once more as optimize_for_inference has it besides.
        assert re.match("parameters and buffers take [12].0 MB", find(report, "memory").message)
        seen = find(report, "operators").message
        assert "the model raised" not in seen
        assert ("not known before the model runs" in seen) == (inputs is None)
    # TorchScript may fuse what it has run a few times.
    torch.testing.assert_close(frozen(x), before)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_the_class_that_was_compiled_decides():
    quantized = torch.jit.script(Quantized())
    assert find(nvidia(quantized), "modules").status is Status.FAILED


class Quantized(nn.Module):
    """An operator of a class that PyTorch runs on CPUs only."""

    __module__ = "torch.ao.nn.quantized.modules.tests"

    def forward(self, x):
        return x


@pytest.mark.parametrize("validate", [nvidia, tpu])
def test_a_lazy_module_is_left_as_it_is_and_what_it_hides_is_skipped(validate):
    model = nn.Sequential(nn.LazyLinear(4), nn.LayerNorm(4))
    settings = {"precision": "bfloat16"}
    settings |= {"mixed_precision": False} if validate is tpu else {"allow_fp32": False}
    report = validate(model, torch.ones(2, 4), **settings)
    assert isinstance(model[0].weight, nn.UninitializedParameter)
    skipped = {each.name: each for each in report.skipped}
    assert {"memory", "operators", "dynamic shapes", "custom kernels"} <= set(skipped)
    assert skipped["memory"].message.startswith("0.weight is not initialized")


@pytest.mark.parametrize("validate", [nvidia, tpu])
def test_an_exported_program_which_has_no_mode_is_called(validate):
    program = torch.export.export(nn.Linear(4, 4), (torch.ones(2, 4),)).module()
    report = validate(program, torch.ones(2, 4))
    assert report.ok, report
    assert find(report, "operators").status is not Status.FAILED


def test_the_mode_is_set_without_what_eval_does_besides():
    class Merging(nn.Linear):
        def train(self, mode=True):
            self.weight.data.zero_()
            return super().train(mode)

    model = Merging(4, 4)
    nvidia(model, torch.ones(2, 4))
    assert model.training
    assert model.weight.abs().sum() > 0


def test_a_check_that_raises_hides_no_other(monkeypatch):
    def broken(model):
        raise KeyError(0)

    monkeypatch.setattr("tensor_ops_torch.modules.swap_report", broken)
    report = nvidia(nn.Linear(4, 4))
    assert find(report, "custom kernels").status is Status.SKIPPED
    assert "KeyError: 0" in find(report, "custom kernels").message


@pytest.mark.parametrize("status", list(Status))
def test_a_report_is_true_unless_something_failed(status):
    report = ValidationReport("a GPU", (ValidationCheck("memory", status, "as it is"),))
    assert bool(report) is report.ok is (status is not Status.FAILED)
    assert ValidationReport("a GPU", ())

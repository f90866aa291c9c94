"""Tests that need an NVIDIA GPU. Without one nothing here runs."""

import pytest
import torch
from torch import nn

from tensor_ops_devices.backends.cpu import CPUBackend
from tensor_ops_devices.backends.float8 import Float8Linear
from tensor_ops_devices.backends.nvidia import NVIDIABackend
from tensor_ops_devices.hardware.config import HardwareConfig, KernelPyTorchConfig, NVIDIAConfig
from tensor_ops_devices.hardware.detector import HardwareDetector
from tensor_ops_devices.hardware.profile import MB
from tensor_ops_devices.validation.unified_validator import UnifiedValidator

PROFILE = HardwareDetector().find("nvidia")
pytestmark = pytest.mark.skipif(PROFILE is None, reason="no NVIDIA GPU that PyTorch can use")


def config(**settings):
    return KernelPyTorchConfig(hardware=HardwareConfig(nvidia=NVIDIAConfig(**settings)))


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64))


def test_a_model_and_its_checkpoint_go_there_and_back():
    x, expected = torch.ones(4, 64), model()(torch.ones(4, 64))
    backend = NVIDIABackend(fallback=False)
    moved = backend.prepare_model(model())
    found = moved(backend.prepare_data(x))
    assert found.device == backend.device
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
    other = CPUBackend().prepare_model(model())
    other.load_state_dict({key: value.cpu() for key, value in moved.state_dict().items()})
    assert torch.equal(other(x), expected)


def test_memory_is_counted_and_given_back():
    backend = NVIDIABackend(fallback=False)
    before = backend.get_memory_stats()
    held = torch.zeros(256 * MB, dtype=torch.uint8, device=backend.device)
    after = backend.get_memory_stats()
    assert after["allocated"] - before["allocated"] == pytest.approx(256, abs=2)
    assert after["peak"] >= after["allocated"]
    del held
    backend.synchronize()
    backend.empty_cache()
    assert backend.get_memory_stats()["allocated"] <= before["allocated"]


def test_a_pool_that_must_not_grow():
    torch.cuda.empty_cache()
    used = torch.cuda.memory_reserved() // MB
    size = int(used) + 128
    with NVIDIABackend(config(memory_growth_enabled=False, memory_pool_init_mb=size)) as backend:
        assert backend.get_memory_stats()["reserved"] >= 128
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty((size + 64) * MB, dtype=torch.uint8, device=backend.device)
    assert torch.empty((size + 64) * MB, dtype=torch.uint8, device=backend.device).numel()
    torch.cuda.empty_cache()


@pytest.mark.skipif(not (PROFILE and PROFILE.supports("fp8")), reason="no float8")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_float8_forward_and_backward(dtype):
    exact = model().to("cuda", dtype)
    backend = NVIDIABackend(config(fp8_enabled=True))
    rounded = backend.prepare_model(model().to(dtype))
    assert type(rounded[0]) is Float8Linear
    for rows in (1, 5, 64):
        x = torch.randn(rows, 64, device="cuda", dtype=dtype)
        results = [each(x) for each in (exact, rounded)]
        for each, result in zip((exact, rounded), results, strict=True):
            each.zero_grad()
            result.square().mean().backward()
        pairs = [results, (exact[0].weight.grad, rounded[0].weight.grad)]
        for one, other in pairs:
            error = (one.float() - other.float()).norm() / one.float().norm()
            assert 0 < error < 0.2


def test_attention_and_precision():
    version = "2" if PROFILE.supports("flash_attention_2") else "auto"
    with NVIDIABackend(config(flash_attention_version=version, precision="float16")) as backend:
        attention = nn.MultiheadAttention(64, 4, batch_first=True)
        prepared = backend.prepare_model(attention)
        x = backend.prepare_data(torch.randn(2, 32, 64))
        found, _ = prepared(x, x, x, need_weights=False)
    assert found.dtype == torch.float16
    assert torch.isfinite(found).all()


def test_the_validator_finds_the_gpu():
    report = UnifiedValidator().validate_nvidia_compatibility(
        model().cuda(), example_inputs=torch.ones(2, 64, device="cuda")
    )
    assert report.ok, report
    assert {"device", "operators", "memory"} <= {each.name for each in report.passed}

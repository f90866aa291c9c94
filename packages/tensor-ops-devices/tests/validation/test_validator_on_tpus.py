"""The validator on TPUs: what they compute, what is there, and settings without effect."""

import pytest
import torch
from torch import nn
from validated import big, find, model, nvidia, tpu

from tensor_ops_devices.hardware import detector as hardware_detector
from tensor_ops_devices.hardware.config import TPUTopology, TPUVersion
from tensor_ops_devices.hardware.detector import HardwareType


@pytest.mark.parametrize(
    ("dtype", "status"),
    [
        (torch.float64, "failed"),
        (torch.complex64, "failed"),
        (torch.float8_e4m3fn, "failed"),
        (torch.float16, "warning"),
        (torch.bfloat16, "passed"),
        (torch.float32, "passed"),
    ],
)
def test_dtypes_on_a_tpu(dtype, status):
    network = nn.Module()
    network.weight = nn.Parameter(torch.zeros(4).to(dtype), requires_grad=False)
    assert find(tpu(network), "dtypes")[0].startswith(f"{status}: ")
    if status == "failed" and not dtype.is_complex:
        assert tpu(network, precision="bfloat16", mixed_precision=False).ok


def test_memory_is_held_against_the_version_of_the_tpu():
    assert find(tpu(big(15), version="v5e"), "memory")[0].startswith("passed")
    assert find(tpu(big(17), version="v5e"), "memory")[0].startswith("failed")
    assert find(tpu(big(17), version="v4"), "memory")[0].startswith("passed")
    assert find(tpu(big(15), version="v5e", memory_fraction=0.5), "memory")[0].startswith("failed")
    halved = {"precision": "bfloat16", "mixed_precision": False}
    assert find(tpu(big(17), version="v5e", **halved), "memory")[0].startswith("passed")
    assert find(tpu(big(17)), "memory")[0].startswith("skipped")


@pytest.fixture
def there(tpu_profile, monkeypatch):
    """A function that puts a TPU into the machine."""

    def make(*args, **kwargs):
        profile = tpu_profile(*args, **kwargs)
        monkeypatch.setitem(hardware_detector.PROBES, HardwareType.TPU, lambda: profile)

    return make


@pytest.mark.parametrize(
    ("hosts", "slices", "topology"),
    [(1, 1, TPUTopology.SINGLE), (4, 1, TPUTopology.POD), (8, 2, TPUTopology.SUPERPOD)],
)
def test_a_tpu_that_is_here(hosts, slices, topology, there):
    there(TPUVersion.V5E, hosts, slices)
    report = tpu(model(), version="v5e", topology=topology)
    assert report.ok
    assert {"device", "version", "topology"} <= {each.name for each in report.passed}
    for other in {TPUTopology.SINGLE, TPUTopology.POD, TPUTopology.SUPERPOD} - {topology}:
        report = tpu(model(), version="v5p", topology=other)
        assert {each.name for each in report.failed} == {"version", "topology"}


def test_settings_of_a_tpu_that_do_nothing_are_told():
    (outcome,) = find(tpu(model(), mixed_precision=True), "mixed_precision")
    assert outcome.startswith("warning: has no effect")
    assert find(tpu(model(), mixed_precision=True, precision="float32"), "mixed_precision")
    (outcome,) = find(tpu(model(), mixed_precision=True, precision="bfloat16"), "mixed_precision")
    assert outcome.startswith("passed")


def test_modules_that_a_tpu_cannot_run():
    embedding = nn.Sequential(nn.Embedding(4, 4, sparse=True))
    assert find(tpu(embedding), "modules")[0].startswith("failed: 0 has sparse gradients")
    assert find(nvidia(embedding), "modules")[0].startswith("passed")

    class Flash(nn.Module):
        pass

    Flash.__module__ = "flash_attn.modules.mha"
    assert find(tpu(nn.Sequential(Flash())), "modules")[0].startswith("failed: 0 calls CUDA")

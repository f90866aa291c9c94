"""Without tensor_ops_torch models are prepared, and what is missing is said."""

import sys

import pytest
from torch import nn

import tensor_ops
from tensor_ops_devices import CPUBackend, NVIDIAArchitecture, NVIDIAConfig, UnifiedValidator

SAYS = "tensor_ops_torch, which swaps modules, is not installed .*; .*pip install ./packages/"


@pytest.fixture(autouse=True)
def not_installed(monkeypatch):
    for name in ("tensor_ops_torch", "tensor_ops_torch.modules"):
        monkeypatch.setitem(sys.modules, name, None)


def test_a_model_is_prepared_with_a_warning():
    backend, model = CPUBackend(), nn.LayerNorm(4)
    with pytest.warns(tensor_ops.BackendFallbackWarning, match=SAYS):
        assert backend.prepare_model_with_custom_kernels(model) is model
    assert type(model) is nn.LayerNorm
    assert backend.swap_report is None


def test_strict_is_an_error():
    with pytest.raises(tensor_ops.BackendError, match=SAYS):
        CPUBackend().prepare_model_with_custom_kernels(nn.LayerNorm(4), strict=True)


def test_the_validator_skips_the_check():
    settings = NVIDIAConfig(architecture=NVIDIAArchitecture.HOPPER)
    report = UnifiedValidator().validate_nvidia_compatibility(nn.LayerNorm(4), settings)
    (check,) = [each for each in report.skipped if each.name == "custom kernels"]
    assert "tensor_ops_torch, which swaps modules, is not installed" in check.message

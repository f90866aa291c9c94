"""A torch_xla that is installed and does not work: an absent TPU with the reason, never a crash."""

import importlib.metadata
import sys

import pytest
import torch
from torch import nn

import tensor_ops
from tensor_ops_devices.backends import create_backend, tpu
from tensor_ops_devices.backends.tpu import TPUBackend
from tensor_ops_devices.hardware import xla
from tensor_ops_devices.hardware.detector import HardwareDetector
from tensor_ops_devices.validation.unified_validator import UnifiedValidator

UNDEFINED = "_XLAC.so: undefined symbol: deleteNode"
REASON = f"torch_xla cannot be imported: ImportError: {UNDEFINED}"


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A torch_xla of another PyTorch's version, whose extension module cannot be loaded."""
    package = tmp_path / "torch_xla"
    package.mkdir()
    (package / "__init__.py").write_text(f"raise ImportError({UNDEFINED!r})\n")
    facts = tmp_path / "torch_xla-1.2.3.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_xla\nVersion: 1.2.3\n")
    for name in [each for each in sys.modules if each.split(".")[0] == "torch_xla"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    return package


@pytest.mark.parametrize("device", ["CPU", "TPU"])
def test_the_warning_says_where_models_run_and_why(device, broken, monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", device)
    with pytest.warns(tensor_ops.BackendFallbackWarning) as caught:
        backend = TPUBackend()
    (warning,) = caught
    assert REASON in str(warning.message)
    assert "Models run on the CPU instead" in str(warning.message)
    assert backend.is_fallback
    assert REASON in backend.reason
    assert backend.prepare_model(nn.Linear(2, 2)).weight.device.type == "cpu"


@pytest.mark.parametrize("device", ["CPU", "TPU"])
def test_a_tpu_that_must_be_there_is_the_usual_error(device, broken, monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", device)
    with pytest.raises(tensor_ops.BackendUnavailableError, match="undefined symbol") as caught:
        TPUBackend(fallback=False)
    assert caught.value.name == "tpu"


def test_the_detector_has_the_reason_and_what_to_install(broken, monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", "TPU")
    reason = HardwareDetector().reasons["tpu"]
    assert reason.startswith(REASON)
    own = ".".join(torch.__version__.split(".")[:2])
    assert "torch_xla 1.2.3 is for PyTorch 1.2, and" in reason
    assert f"pip install 'torch==1.2.*', or the torch_xla of PyTorch {own}" in reason
    with pytest.raises(tensor_ops.BackendError, match="undefined symbol"):
        create_backend(requires=["xla"])


def test_versions_are_not_blamed_where_they_fit(broken, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda _: torch.__version__)
    assert xla.why_not_importable().endswith("pip install --force-reinstall torch_xla")


def test_the_validator_skips_what_only_torch_xla_knows(broken):
    report = UnifiedValidator().validate_tpu_compatibility(
        nn.Linear(2, 2), example_inputs=torch.ones(1, 2)
    )
    (check,) = [each for each in report.skipped if each.name == "operators"]
    assert REASON in check.message


def test_a_device_that_does_not_start_is_the_reason(broken, monkeypatch):
    (broken / "__init__.py").write_text("")

    def start():
        raise RuntimeError("no such plugin")

    monkeypatch.setattr(tpu, "XlaRuntime", start)
    monkeypatch.setenv("PJRT_DEVICE", "NEURON")
    with pytest.warns(tensor_ops.BackendFallbackWarning) as caught:
        assert TPUBackend().is_fallback
    (warning,) = caught
    assert "RuntimeError: no such plugin. Models run on the CPU" in str(warning.message)


def test_an_empty_choice_of_device_is_none(monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", "")
    assert xla.chosen_device() is None
    monkeypatch.setenv("PJRT_DEVICE", "TPU_C2X2")
    assert xla.chosen_device() == "TPU"

"""Calls of torch_xla by TPUBackend for each of its settings; the CPU plays a TPU.

That torch_xla then does it is tested in test_xla.py, on its own device for CPUs.
"""

import dataclasses
import os
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

import tensor_ops
from tensor_ops_devices.backends import tpu
from tensor_ops_devices.backends.monitor import MemoryBudgetWarning
from tensor_ops_devices.backends.runtimes import HostRuntime
from tensor_ops_devices.backends.tpu import TPUBackend
from tensor_ops_devices.hardware import detector as hardware_detector
from tensor_ops_devices.hardware.config import (
    HardwareConfig,
    KernelPyTorchConfig,
    TPUCompilationMode,
    TPUConfig,
    TPUTopology,
    TPUVersion,
)
from tensor_ops_devices.hardware.detector import HardwareDetector, HardwareType
from tensor_ops_devices.hardware.profile import MB

HAS_TPU = HardwareDetector().find("tpu") is not None
MONITORING = {
    "allocation_history_retention_seconds",
    "monitoring_interval_seconds",
    "monitoring_duration_seconds",
}


def config(**settings):
    return KernelPyTorchConfig(hardware=HardwareConfig(tpu=TPUConfig(**settings)))


class PlayedRuntime(HostRuntime):
    """A TPU of 8 MB, of which 5 are in use."""

    def memory(self):
        return {"allocated": 5 * MB, "reserved": 5 * MB, "peak": 6 * MB, "total": 8 * MB, "free": 0}


@pytest.fixture
def backend(tpu_profile, monkeypatch, tmp_path):
    """A function that makes a backend on a TPU v5e."""
    xla, runtime = ModuleType("torch_xla"), ModuleType("torch_xla.runtime")
    make_state = SimpleNamespace(compiled=False, caches=[])
    xla._XLAC = SimpleNamespace(_xla_computation_cache_is_initialized=lambda: make_state.compiled)
    xla.runtime, runtime.initialize_cache = runtime, make_state.caches.append
    monkeypatch.setitem(sys.modules, "torch_xla", xla)
    monkeypatch.setitem(sys.modules, "torch_xla.runtime", runtime)
    monkeypatch.setattr(tpu, "XlaRuntime", PlayedRuntime)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for variable in ("XLA_PERSISTENT_CACHE_PATH", "XLA_COMPILATION_CACHE_SIZE"):
        monkeypatch.delenv(variable, raising=False)

    def make(hosts=1, slices=1, **settings):
        profile = tpu_profile(TPUVersion.V5E, hosts, slices)
        monkeypatch.setitem(hardware_detector.PROBES, HardwareType.TPU, lambda: profile)
        # The variables that the backend sets go with the test.
        monkeypatch.setattr(os, "environ", make.environment)
        return TPUBackend(config(**settings))

    make.state, make.environment = make_state, dict(os.environ)
    return make


def version(backend):
    assert not backend(version=TPUVersion.V5E).is_fallback
    with pytest.raises(tensor_ops.BackendError, match=r"v4 is asked for, TPU v5e is v5e; use that"):
        backend(version="v4")


def topology(backend):
    assert backend(topology=TPUTopology.SINGLE).name == "tpu"
    assert backend(topology=TPUTopology.POD, hosts=2).name == "tpu"
    with pytest.raises(tensor_ops.BackendError, match=r"pod is asked for, TPU v5e is a single; st"):
        backend(topology="pod")


def compilation_mode(backend):
    model, calls = nn.Linear(4, 4), []
    assert backend(compilation_mode="torch_xla").prepare_model(model) is model
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", lambda *args, **kwargs: calls.append((args, kwargs)))
        backend(compilation_mode=TPUCompilationMode.TORCH_COMPILE).prepare_model(model)
    assert calls == [((model,), {"backend": "openxla"})]


def enable_xla_cache(backend):
    backend(enable_xla_cache=True)
    (path,) = backend.state.caches
    assert path.endswith(os.path.join("tensor-ops", "xla"))
    assert os.path.isdir(path)
    backend.environment["XLA_PERSISTENT_CACHE_PATH"] = path  # as initialize_cache does
    backend.state.compiled = True
    backend(enable_xla_cache=True)
    assert len(backend.state.caches) == 1
    del backend.environment["XLA_PERSISTENT_CACHE_PATH"]
    with pytest.raises(
        tensor_ops.BackendError, match="enable_xla_cache comes too late, XLA has co"
    ):
        backend(enable_xla_cache=True)


def cache_max_size(backend):
    backend(cache_max_size=100)
    assert backend.environment["XLA_COMPILATION_CACHE_SIZE"] == "100"
    backend.state.compiled = True
    backend(cache_max_size=100)
    with pytest.raises(
        tensor_ops.BackendError, match="asks for 50, but XLA_COMPILATION_CACHE_SIZE"
    ):
        backend(cache_max_size=50)
    del backend.environment["XLA_COMPILATION_CACHE_SIZE"]
    with pytest.raises(tensor_ops.BackendError, match="cache_max_size comes too late"):
        backend(cache_max_size=50)


def precision(backend):
    x = torch.ones(1, 4)
    model = backend(precision="bfloat16").prepare_model(nn.Linear(4, 4))
    assert (model.weight.dtype, model(x).dtype) == (torch.float32, torch.bfloat16)
    model = backend(precision="float32").prepare_model(nn.Linear(4, 4).bfloat16())
    assert model.weight.dtype == model(x).dtype == torch.float32


def mixed_precision(backend):
    mixed = backend(precision="bfloat16", mixed_precision=True).prepare_model(nn.Linear(4, 4))
    assert mixed.weight.dtype == torch.float32
    made = backend(precision="bfloat16", mixed_precision=False)
    whole = made.prepare_model(nn.Linear(4, 4))
    assert whole.weight.dtype == torch.bfloat16
    assert whole(made.prepare_data(torch.ones(1, 4))).dtype == torch.bfloat16
    with pytest.warns(RuntimeWarning, match="mixed_precision: has no effect: precision is None"):
        backend(mixed_precision=True)


def memory_fraction(backend):
    model = nn.Linear(1024, 1024, bias=False)  # of 4 MB
    backend(memory_fraction=0.5).prepare_model(model)
    with pytest.raises(tensor_ops.BackendError, match=r"take 4.0 MB, memory_fraction=0.4 allows 3"):
        backend(memory_fraction=0.4).prepare_model(model)
    with (
        pytest.warns(MemoryBudgetWarning, match="5 MB were in use, the configuration allows 4 MB"),
        backend(memory_fraction=0.5).monitor(),
    ):
        pass


def allocation_history_retention_seconds(backend):
    made = backend(allocation_history_retention_seconds=0.05, monitoring_interval_seconds=0.01)
    with made.monitor() as monitor:
        time.sleep(0.3)
    assert monitor.samples[0].seconds > 0.1


def monitoring_interval_seconds(backend):
    with backend(monitoring_interval_seconds=0.02).monitor() as monitor:
        time.sleep(0.15)
    assert 4 <= len(monitor.samples) <= 10
    assert backend().monitor(interval_seconds=3).interval_seconds == 3


def monitoring_duration_seconds(backend):
    made = backend(monitoring_duration_seconds=0.05, monitoring_interval_seconds=0.01)
    with made.monitor() as monitor:
        time.sleep(0.3)
        assert not monitor.is_running


EFFECTS = {
    function.__name__: function
    for function in (
        version,
        topology,
        compilation_mode,
        enable_xla_cache,
        cache_max_size,
        precision,
        mixed_precision,
        memory_fraction,
        allocation_history_retention_seconds,
        monitoring_interval_seconds,
        monitoring_duration_seconds,
    )
}
FIELDS = [field.name for field in dataclasses.fields(TPUConfig)]
NOT_DEFAULT = {
    "version": TPUVersion.V5E,
    "topology": TPUTopology.SINGLE,
    "compilation_mode": TPUCompilationMode.TORCH_COMPILE,
    "enable_xla_cache": True,
    "cache_max_size": 100,
    "precision": "bfloat16",
    "mixed_precision": True,
    "memory_fraction": 0.9,
}


@pytest.mark.parametrize("name", FIELDS)
def test_each_setting_has_its_effect(name, backend):
    EFFECTS[name](backend)


@pytest.mark.skipif(HAS_TPU, reason="this machine has a TPU")
@pytest.mark.parametrize("name", [name for name in FIELDS if name not in MONITORING])
def test_without_a_tpu_each_setting_is_named_in_the_one_warning(name, monkeypatch):
    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    value = NOT_DEFAULT[name]
    with pytest.warns(tensor_ops.BackendFallbackWarning) as caught:
        made = TPUBackend(config(**{name: value}))
    model = nn.Linear(4, 4)
    assert made.prepare_model(model) is model
    assert model(torch.ones(1, 4)).dtype == torch.float32
    (warning,) = caught
    shown = getattr(value, "value", value)
    assert f"on the CPU instead; without effect there: {name}={shown!r}" in str(warning.message)


@pytest.mark.skipif(HAS_TPU, reason="this machine has a TPU")
def test_monitoring_works_without_a_tpu(monkeypatch):
    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    settings = {
        "monitoring_interval_seconds": 0.01,
        "monitoring_duration_seconds": 0.1,
        "allocation_history_retention_seconds": 60.0,
    }
    with pytest.warns(tensor_ops.BackendFallbackWarning) as caught:
        made = TPUBackend(config(**settings))
    assert "without effect" not in str(caught[0].message)
    with made.monitor() as monitor:
        time.sleep(0.3)
    assert monitor.peak("allocated") > 0
    assert monitor.retention_seconds == 60


def test_the_default_settings_ask_nothing_of_xla(backend):
    before = dict(backend.environment)
    made = backend()
    model = nn.Linear(4, 4)
    assert made.prepare_model(model) is model
    assert type(model) is nn.Linear
    assert backend.state.caches == []
    assert backend.environment == before


def test_a_tpu_has_no_kernels_of_tensor_ops(backend):
    made = backend()
    made.runtime.has_kernels = False  # as XlaRuntime
    with pytest.warns(tensor_ops.BackendFallbackWarning, match="no kernels"):
        made.prepare_model_with_custom_kernels(nn.LayerNorm(4))
    assert tpu.Runtime.has_kernels is False

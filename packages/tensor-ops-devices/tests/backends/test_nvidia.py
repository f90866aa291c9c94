"""Calls of PyTorch by NVIDIABackend for each of its settings; the CPU plays a GPU."""

import dataclasses
import sys

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend

import tensor_ops
from tensor_ops_devices.backends import nvidia
from tensor_ops_devices.backends.float8 import Float8Linear
from tensor_ops_devices.backends.nvidia import NVIDIABackend
from tensor_ops_devices.hardware.config import (
    HardwareConfig,
    KernelPyTorchConfig,
    NVIDIAArchitecture,
    NVIDIAConfig,
)
from tensor_ops_devices.hardware.profile import MB
from tensor_ops_devices.validation import nvidia as rules


def config(**settings):
    return KernelPyTorchConfig(hardware=HardwareConfig(nvidia=NVIDIAConfig(**settings)))


@pytest.fixture
def backend(gpu):
    """A function that makes a backend on a GPU, and closes it in the end."""
    made = []

    def make(model="H100", count=1, **settings):
        make.gpu = gpu(model, count)
        made.append(NVIDIABackend(config(**settings)))
        return made[-1]

    yield make
    for each in reversed(made):
        each.close()


def architecture(backend):
    assert not backend(architecture=NVIDIAArchitecture.HOPPER).is_fallback
    with pytest.raises(
        tensor_ops.BackendError,
        match=r"HOPPER is asked for, NVIDIA A100-SXM4-80GB \(sm_80\) is AMPERE; choose another",
    ):
        backend("A100", architecture=NVIDIAArchitecture.HOPPER)


def device_id(backend):
    assert backend(count=2, device_id=1).runtime.device_id == 1
    with pytest.raises(tensor_ops.BackendError, match="device_id is 2, but there are 2 CUDA"):
        backend(count=2, device_id=2)


def fp8_enabled(backend):
    model = nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 16))
    assert backend("L4", fp8_enabled=True).prepare_model(model) is model
    assert [type(each) for each in model] == [Float8Linear] * 2
    with pytest.raises(tensor_ops.BackendError, match=r"sm_80\) cannot multiply float8.*sm_89"):
        backend("A100", fp8_enabled=True)


def flash_attention_version(backend):
    order = torch._C._get_sdp_priority_order()
    made = backend("A100", flash_attention_version="2")
    assert torch._C._get_sdp_priority_order()[0] == int(SDPBackend.FLASH_ATTENTION)
    assert torch.backends.cuda.math_sdp_enabled()
    made.close()
    assert torch._C._get_sdp_priority_order() == order
    with pytest.raises(tensor_ops.BackendError, match=r"sm_75\) cannot run FlashAttention-2"):
        backend("T4", flash_attention_version="2")
    for other in ("A100", "B200"):
        with pytest.raises(tensor_ops.BackendError, match=r"FlashAttention-3.*are for sm_90; set"):
            backend(other, flash_attention_version="3")
    with pytest.raises(tensor_ops.BackendError, match="flash_attn_interface is not installed"):
        backend("H100", flash_attention_version="3")


def tensor_core_version(backend):
    for name, version in {"T4": 2, "A100": 3, "H100": 4, "B200": 5}.items():
        assert backend(name, tensor_core_version=version).name == "nvidia"
    with pytest.raises(tensor_ops.BackendError, match=r"generation 4 is asked for.*has 3; set it"):
        backend("A100", tensor_core_version=4)


def memory_pool_init_mb(backend):
    sizes = []
    real = torch.empty
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "empty", lambda *args, **kwargs: sizes.append(args) or real(0))
        backend(memory_pool_init_mb=1024)
    assert sizes == [(1024 * MB,)]
    with pytest.raises(tensor_ops.BackendError, match="90000 MB are more than the 81920 MB"):
        backend(memory_pool_init_mb=90_000)


def memory_growth_enabled(backend):
    made = backend(memory_growth_enabled=True)
    assert backend.gpu.asked("allocator") == [["expandable_segments:True"]]
    made.close()
    assert backend.gpu.asked("allocator")[-1] == ["expandable_segments:False"]
    backend(memory_growth_enabled=False, memory_pool_init_mb=8)
    ((fraction, _),) = backend.gpu.asked("fraction")
    assert fraction == pytest.approx((8 + 2) / (80 * 1024))
    with pytest.raises(tensor_ops.BackendError, match="nothing could be allocated; set memory_p"):
        backend(memory_growth_enabled=False)


def max_memory_fraction(backend):
    made = backend(max_memory_fraction=0.9)
    assert backend.gpu.asked("fraction") == [[0.9, made.device]]
    made.close()
    assert backend.gpu.asked("fraction")[-1] == [0.75, made.device]  # what it was before


def precision(backend):
    model = nn.Linear(4, 2)
    for name in ("float16", "bfloat16"):
        model = backend(precision=name).prepare_model(model)
        assert model(torch.ones(1, 4)).dtype == getattr(torch, name)
        assert model.weight.dtype == torch.float32
    model = backend(precision="float32").prepare_model(model.half())
    assert model.weight.dtype == model(torch.ones(1, 4)).dtype == torch.float32
    with pytest.warns(RuntimeWarning, match="precision: .*has no arithmetic for bfloat16"):
        backend("T4", precision="bfloat16")


def allow_fp32(backend):
    made = backend(precision="bfloat16", allow_fp32=False)
    model = made.prepare_model(nn.Linear(4, 2))
    assert model.weight.dtype == torch.bfloat16
    data = made.prepare_data({"x": torch.ones(1, 4), "ids": torch.ones(1, dtype=torch.int64)})
    assert (data["x"].dtype, data["ids"].dtype) == (torch.bfloat16, torch.int64)
    assert model(data["x"]).dtype == torch.bfloat16
    with pytest.raises(tensor_ops.BackendError, match="'float32' is not allowed to be float32"):
        backend(precision="float32", allow_fp32=False)
    with pytest.warns(RuntimeWarning, match="allow_fp32: has no effect: precision is None"):
        backend(allow_fp32=False)


EFFECTS = {
    function.__name__: function
    for function in (
        architecture,
        device_id,
        fp8_enabled,
        flash_attention_version,
        tensor_core_version,
        memory_pool_init_mb,
        memory_growth_enabled,
        max_memory_fraction,
        precision,
        allow_fp32,
    )
}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(NVIDIAConfig)])
def test_each_setting_has_its_effect(name, backend):
    EFFECTS[name](backend)


NOT_DEFAULT = {
    "architecture": NVIDIAArchitecture.HOPPER,
    "device_id": 1,
    "fp8_enabled": True,
    "flash_attention_version": "3",
    "tensor_core_version": 4,
    "memory_pool_init_mb": 1024,
    "memory_growth_enabled": True,
    "max_memory_fraction": 0.9,
    "precision": "float16",
    "allow_fp32": False,
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(NVIDIAConfig)])
def test_without_a_gpu_each_setting_is_named_in_the_one_warning(name):
    with pytest.warns(tensor_ops.BackendFallbackWarning) as caught:
        made = NVIDIABackend(config(**{name: NOT_DEFAULT[name]}))
    model = made.prepare_model(nn.Linear(16, 16))
    assert type(model) is nn.Linear
    assert model(torch.ones(1, 16)).dtype == torch.float32
    (warning,) = caught
    value = NOT_DEFAULT[name]
    shown = value.value if name == "architecture" else value
    assert f"on the CPU instead; without effect there: {name}={shown!r}" in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_and_without_fallback():
    with pytest.raises(
        tensor_ops.BackendUnavailableError, match=r"NVIDIABackend: .*CUDA"
    ) as raised:
        NVIDIABackend(fallback=False)
    assert raised.value.name == "nvidia"


def test_the_default_settings_ask_nothing_of_pytorch(backend):
    made = backend()
    assert backend.gpu.calls == []
    model = nn.Linear(4, 2)
    assert made.prepare_model(model) is model
    assert type(model) is nn.Linear
    assert (made.device, made.is_fallback, made.reason) == (torch.device("cpu"), False, None)


def test_settings_of_the_environment_are_kept(backend, monkeypatch):
    made = backend()
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    made.let_segments_grow()
    assert backend.gpu.asked("allocator") == [["max_split_size_mb:64,expandable_segments:True"]]
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    made.let_segments_grow()
    assert len(backend.gpu.asked("allocator")) == 1
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False")
    with pytest.raises(tensor_ops.BackendError, match="the environment says 'expandable_segments"):
        made.let_segments_grow()


def test_the_settings_of_the_allocator_are_those_pytorch_knows():
    nvidia.set_allocator("expandable_segments:True")
    nvidia.set_allocator("expandable_segments:False")
    with pytest.raises((ValueError, RuntimeError), match=r"'True' or 'False'|boolean"):
        nvidia.set_allocator("expandable_segments:perhaps")


def test_flash_attention_3_is_activated_where_it_is_installed(backend, monkeypatch):
    calls = []
    attention = torch.nn.attention
    for name in ("activate_flash_attention_impl", "restore_flash_attention_impl"):
        record = lambda *args, name=name: calls.append((name, *args))  # noqa: E731
        monkeypatch.setattr(attention, name, record, raising=False)
    monkeypatch.setattr(rules.importlib.util, "find_spec", lambda name: name)
    with backend("H100", flash_attention_version="3"):
        assert calls == [("activate_flash_attention_impl", "FA3")]
    assert calls[1:] == [("restore_flash_attention_impl",)]


def test_what_was_changed_is_taken_back_if_a_later_setting_fails(backend, monkeypatch):
    monkeypatch.setattr(torch, "empty", lambda *_, **__: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(MemoryError):
        backend(max_memory_fraction=0.5, memory_pool_init_mb=10)
    assert [fraction for fraction, _ in backend.gpu.asked("fraction")] == [0.5, 0.75]


def test_layers_that_float8_does_not_fit_are_told(backend):
    made = backend(fp8_enabled=True)
    with pytest.warns(RuntimeWarning, match="1 of 2 nn.Linear stay as they are, the first '1': ou"):
        made.prepare_model(nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 3)))
    with pytest.warns(RuntimeWarning, match="the model has no nn.Linear") as caught:
        made.prepare_model(nn.LayerNorm(4))
    assert caught[0].filename == __file__


def test_another_backend_undoes_float8_and_autocast(backend):
    from tensor_ops_devices.backends.cpu import CPUBackend

    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    x = torch.ones(1, 16)
    expected = model(x)
    made = backend(fp8_enabled=True, precision="bfloat16")
    assert made.prepare_model(made.prepare_model(model))(x).dtype == torch.bfloat16
    model = CPUBackend().prepare_model(model)
    assert torch.equal(model(x), expected)
    assert type(model) is nn.Sequential


def test_custom_kernels_come_before_float8(backend):
    made = backend(fp8_enabled=True)
    model = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.SiLU())
    x = torch.ones(2, 16)
    assert made.prepare_model_with_custom_kernels(model) is model
    assert type(model[0]) is Float8Linear
    assert made.swap_report.counts == {"layer_norm": 1, "silu": 1}
    plain = nn.Sequential(model[0], nn.LayerNorm(16), nn.SiLU())
    torch.testing.assert_close(model(x), plain(x))


@pytest.mark.skipif("torch_xla" in sys.modules, reason="needs no other device")
def test_what_cuda_reports_is_reported_in_mb(monkeypatch):
    from tensor_ops_devices.backends.runtimes import CudaRuntime

    cuda = torch.cuda
    monkeypatch.setattr(cuda, "mem_get_info", lambda _: (3 * MB, 8 * MB))
    monkeypatch.setattr(cuda, "memory_allocated", lambda _: MB + MB // 2)
    monkeypatch.setattr(cuda, "memory_reserved", lambda _: 2 * MB)
    monkeypatch.setattr(cuda, "max_memory_allocated", lambda _: 4 * MB)
    with pytest.warns(tensor_ops.BackendFallbackWarning):
        made = NVIDIABackend()
    made.runtime = CudaRuntime(1)
    assert made.device == torch.device("cuda", 1)
    assert made.get_memory_stats() == {
        "allocated": 1.5,
        "reserved": 2.0,
        "peak": 4.0,
        "total": 8.0,
        "free": 3.0,
    }
    waited = []
    monkeypatch.setattr(cuda, "synchronize", waited.append)
    monkeypatch.setattr(cuda, "empty_cache", lambda: waited.append("emptied"))
    made.synchronize()
    made.empty_cache()
    assert waited == [torch.device("cuda", 1), "emptied"]


def test_settings_that_are_assigned_later_are_told_of(backend):
    made = backend("A100")
    made.prepare_model(nn.Linear(16, 16))
    made.config.hardware.nvidia.fp8_enabled = True
    made.config.hardware.nvidia.precision = "float16"
    with pytest.warns(RuntimeWarning, match="fp8_enabled, precision changed after") as caught:
        model = made.prepare_model(nn.Linear(16, 16))
    assert type(model) is nn.Linear
    assert caught[0].filename == __file__
    with pytest.raises(tensor_ops.BackendError, match="cannot multiply float8"):
        NVIDIABackend(made.config)

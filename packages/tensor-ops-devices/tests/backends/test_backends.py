"""Tests of all backends: models and data, memory and its monitor, fall-back."""

import copy
import inspect
import mmap
import pickle
import threading
from collections import OrderedDict, namedtuple

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import tensor_ops
from tensor_ops_devices.backends import BACKENDS, create_backend
from tensor_ops_devices.backends.amd import AMDBackend
from tensor_ops_devices.backends.cpu import CPUBackend
from tensor_ops_devices.backends.float8 import to_float8
from tensor_ops_devices.backends.moving import map_tensors, move_model
from tensor_ops_devices.backends.mps import MPSBackend
from tensor_ops_devices.backends.nvidia import NVIDIABackend
from tensor_ops_devices.backends.precision import autocast_always, autocast_no_more
from tensor_ops_devices.backends.runtimes import HostRuntime, MpsRuntime, XpuRuntime
from tensor_ops_devices.backends.tpu import TPUBackend
from tensor_ops_devices.backends.xpu import XPUBackend
from tensor_ops_devices.hardware.config import KernelPyTorchConfig, NVIDIAConfig
from tensor_ops_devices.hardware.detector import HardwareDetector, HardwareType
from tensor_ops_devices.hardware.profile import MB

ACCELERATORS = [NVIDIABackend, TPUBackend, AMDBackend, XPUBackend, MPSBackend]
ABSENT = [each for each in ACCELERATORS if HardwareDetector().find(each.name) is None]


@pytest.mark.parametrize("kind", ABSENT, ids=lambda kind: kind.name)
def test_without_its_hardware_a_backend_is_the_cpu_and_says_so_once(kind, monkeypatch):
    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    with pytest.warns(tensor_ops.BackendFallbackWarning) as caught:
        backend = kind()
    (warning,) = caught
    # No other warning: they are errors here.
    model = nn.Linear(4, 2)
    assert backend.prepare_model(model) is model
    data = backend.prepare_data(torch.ones(1, 4))
    backend.synchronize()
    backend.empty_cache()
    assert backend.get_memory_stats()["allocated"] > 0
    assert str(warning.message).startswith(f"{kind.__name__}: ")
    assert str(warning.message).endswith(". Models run on the CPU instead")
    assert warning.filename == __file__
    assert backend.is_fallback
    assert str(backend.device) == str(model.weight.device) == str(data.device) == "cpu"
    assert backend.reason in str(warning.message)
    assert backend.reason in repr(backend)
    with pytest.raises(tensor_ops.BackendUnavailableError) as raised:
        kind(fallback=False)
    assert raised.value.name == kind.name


def test_the_cpu_is_no_fallback():
    backend = CPUBackend()
    assert (backend.is_fallback, backend.reason) == (False, None)
    assert repr(backend) == "<CPUBackend on cpu>"


def test_there_is_a_backend_for_each_kind_of_hardware():
    assert set(BACKENDS) == {kind.value for kind in HardwareType}
    assert create_backend().name == HardwareDetector().get_optimal_backend()


@pytest.mark.parametrize(
    ("given", "says"),
    [("nvidia", "make a NVIDIABackend"), ("gpu", "make one of NVIDIABackend, TPUBackend")],
)
def test_the_best_backend_has_no_name(given, says):
    with pytest.raises(TypeError, match=f"got the name '{given}'; for .*{says}"):
        create_backend(given)


def test_what_is_given_is_checked():
    with pytest.raises(TypeError, match="config is a NVIDIAConfig, expected a KernelPyTorchConfig"):
        CPUBackend(NVIDIAConfig())
    with pytest.raises(TypeError, match=r"model is a Tensor, expected a torch.nn.Module"):
        CPUBackend().prepare_model(torch.ones(1))
    config = KernelPyTorchConfig()
    assert CPUBackend(config).config is config


Pair = namedtuple("Pair", "x y")


@pytest.fixture
def seen(monkeypatch):
    """The tensors that are moved, in their order."""
    tensors, to = [], torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda x, *a, **k: tensors.append(x) or to(x, *a, **k))
    return tensors


@pytest.mark.parametrize(
    "data",
    [
        torch.ones(2),
        [torch.ones(2), "text", 3],
        (torch.ones(2), None),
        {"a": torch.ones(2), "b": {"c": [torch.zeros(1)]}},
        OrderedDict(a=torch.ones(2)),
        Pair(torch.ones(2), 1),
        "text",
        None,
    ],
    ids=lambda data: type(data).__name__,
)
def test_data_keeps_its_form(data, seen):
    moved = CPUBackend().prepare_data(data)
    count = len(seen)  # printing moves tensors too
    assert type(moved) is type(data)
    assert repr(moved) == repr(data)
    assert count == repr(data).count("tensor(")


def test_tensors_go_to_the_device():
    backend = CPUBackend()
    backend.runtime = HostRuntime()
    backend.runtime.device = torch.device("meta")
    moved = backend.prepare_data({"x": [torch.ones(2)]})
    assert moved["x"][0].device.type == "meta"
    assert backend.prepare_model(nn.Linear(2, 2)).weight.device.type == "meta"


def test_batches_of_a_loader_are_moved_one_at_a_time(seen):
    loader = CPUBackend().prepare_data(DataLoader(torch.arange(6), batch_size=2))
    assert len(loader) == 3
    first = next(iter(loader))
    assert first.tolist() == [0, 1]
    assert [each.tolist() for each in seen] == [[0, 1]]
    assert len(list(loader)) == 3  # and again from the start


def test_a_mapping_that_cannot_be_made_from_a_dict():
    class Odd(dict):
        def __init__(self, a, b):
            super().__init__(a=a, b=b)

    with pytest.raises(TypeError, match=r"cannot make a Odd from a dict .*; give it as a dict"):
        CPUBackend().prepare_data(Odd(1, 2))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 16)
        self.output = nn.Linear(16, 8, bias=False)
        self.output.weight = self.embedding.weight


def test_shared_parameters_stay_shared(monkeypatch):
    # Module.to does this where it makes new parameters, as on XLA devices.
    monkeypatch.setattr(torch.__future__, "get_overwrite_module_params_on_conversion", lambda: True)
    separated = Tied().to(torch.bfloat16)
    assert separated.output.weight is not separated.embedding.weight
    moved = move_model(Tied(), torch.device("cpu"), torch.bfloat16)
    assert moved.output.weight is moved.embedding.weight
    assert moved.output.weight.dtype == torch.bfloat16


def test_a_packed_sequence_keeps_its_batch_sizes_on_the_cpu():
    lengths = torch.tensor([2, 3])
    packed = nn.utils.rnn.pack_padded_sequence(
        torch.ones(2, 3, 1), lengths, batch_first=True, enforce_sorted=False
    )
    moved = map_tensors(packed, lambda each: each.to("meta"))
    assert isinstance(moved, nn.utils.rnn.PackedSequence)
    assert (moved.data.device.type, moved.batch_sizes.device.type) == ("meta", "cpu")
    assert moved.sorted_indices.device.type == moved.unsorted_indices.device.type == "meta"


def test_autocast_lasts_for_the_call():
    model = nn.Linear(4, 2)
    autocast_always(model, "cpu", torch.bfloat16)
    assert model(torch.ones(1, 4)).dtype == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")
    with pytest.raises(RuntimeError, match="shape"):
        model(torch.ones(1, 3))
    assert not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", dtype=torch.float16):
        assert model(torch.ones(1, 4)).dtype == torch.bfloat16
        assert torch.get_autocast_dtype("cpu") == torch.float16
    autocast_no_more(model)
    assert model(torch.ones(1, 4)).dtype == torch.float32


def test_a_model_under_autocast_is_otherwise_what_it_was():
    class Own(nn.Linear):
        def forward(self, x, scale=2):
            return super().forward(x) * scale

    model = Own(4, 2)
    state, kind = set(model.state_dict()), type(model)
    autocast_always(model, "cpu", torch.bfloat16)
    autocast_always(model, "cpu", torch.float16)
    assert isinstance(model, Own)
    assert type(model).__name__ == "Own"
    assert set(model.state_dict()) == state
    assert list(inspect.signature(model.forward).parameters) == ["x", "scale"]
    assert model(torch.ones(1, 4), scale=1).dtype == torch.float16
    autocast_no_more(model)
    assert type(model) is kind


def test_a_model_under_autocast_compiles_as_one_graph():
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    autocast_always(model, "cpu", torch.bfloat16)
    x = torch.ones(2, 4)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert compiled(x).dtype == model(x).dtype
    torch.testing.assert_close(compiled(x), model(x))
    autocast_always(compiled, "cpu", torch.float16)  # reaches what was compiled
    assert compiled(x).dtype == model(x).dtype
    autocast_no_more(compiled)
    assert type(model) is nn.Sequential


def test_models_that_cannot_run_under_autocast_are_refused():
    model = nn.Linear(4, 2)
    model.forward = lambda x: x
    with pytest.raises(tensor_ops.BackendError, match=r"Linear cannot be .* convert the whole mod"):
        autocast_always(model, "cpu", torch.bfloat16)
    assert type(model) is nn.Linear


def test_a_language_model_generates_under_autocast_and_float8():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    settings = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(settings).eval()
    tokens = torch.arange(8)[None]
    exact = model(tokens).logits.detach()
    autocast_always(model, "cpu", torch.bfloat16)
    assert set(to_float8(model).values()) == {None}
    found = model(input_ids=tokens).logits.detach()
    assert found.dtype == torch.bfloat16
    assert 0 < (found - exact).norm() < 0.2 * exact.norm()
    assert model.generate(tokens, max_new_tokens=4, do_sample=False).shape == (1, 12)
    assert CPUBackend().prepare_model(model) is model
    assert torch.equal(model(tokens).logits, exact)


def test_copies_run_under_autocast_with_parameters_of_their_own():
    model = nn.Linear(4, 2, bias=False)
    autocast_always(model, "cpu", torch.bfloat16)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with torch.no_grad():
            other.weight.zero_()
        y = other(torch.ones(1, 4))
        assert y.dtype == torch.bfloat16
        assert not y.any()
    assert model(torch.ones(1, 4)).any()


def test_calls_in_threads_do_not_meet():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    autocast_always(model, "cpu", torch.bfloat16)
    seen, x = [], torch.ones(8, 64)

    def call():
        seen.extend([model(x).dtype for _ in range(50)])
        seen.append(torch.is_autocast_enabled("cpu"))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert seen.count(torch.bfloat16) == 200
    assert seen.count(False) == 4


def test_memory_of_the_cpu_is_that_of_the_process_in_mb():
    backend = CPUBackend()
    # From the system: an allocator may have freed as much before.
    held = mmap.mmap(-1, 64 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    before = backend.get_memory_stats()
    numbers = torch.frombuffer(held, dtype=torch.uint8).fill_(1)
    after = backend.get_memory_stats()
    assert after["allocated"] - before["allocated"] == pytest.approx(64, abs=8)
    assert after["peak"] >= after["allocated"]
    assert after["total"] == before["total"] > after["allocated"]
    assert numbers.any()


def test_memory_of_xpu_and_mps(monkeypatch):
    class Properties:
        total_memory = 16 * MB

    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda _: Properties)
    monkeypatch.setattr(torch.xpu, "memory_allocated", lambda _: 1 * MB)
    monkeypatch.setattr(torch.xpu, "memory_reserved", lambda _: 2 * MB)
    monkeypatch.setattr(torch.xpu, "max_memory_allocated", lambda _: 3 * MB)
    assert list(XpuRuntime().memory().values()) == [MB, 2 * MB, 3 * MB, 16 * MB, 14 * MB]
    allocated = iter([3 * MB, 1 * MB])
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: next(allocated))
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 4 * MB)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 8 * MB)
    mps = MpsRuntime()
    assert mps.memory()["peak"] == 3 * MB
    assert list(mps.memory().values()) == [MB, 4 * MB, 3 * MB, 8 * MB, 4 * MB]


def test_custom_kernels_on_the_cpu():
    backend = CPUBackend()
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())
    x = torch.linspace(-2, 2, 16).reshape(2, 8)
    expected = model(x)
    assert backend.prepare_model_with_custom_kernels(model) is model
    assert backend.swap_report.counts == {"layer_norm": 1, "gelu": 1}
    torch.testing.assert_close(model(x), expected)


def test_where_there_are_no_kernels_the_model_is_prepared_and_that_is_said():
    backend = CPUBackend()
    backend.runtime.has_kernels = False
    model = nn.LayerNorm(8)
    with pytest.warns(tensor_ops.BackendFallbackWarning, match="no kernels for cpu devices. The m"):
        assert backend.prepare_model_with_custom_kernels(model) is model
    assert backend.swap_report is None
    with pytest.raises(tensor_ops.BackendError, match="no kernels for cpu devices; call prepare_m"):
        backend.prepare_model_with_custom_kernels(model, strict=True)

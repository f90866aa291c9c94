"""Checkpoints of one backend, loaded on another."""

import pytest
import torch
from torch import nn

from tensor_ops_devices.backends.cpu import CPUBackend
from tensor_ops_devices.backends.nvidia import NVIDIABackend
from tensor_ops_devices.backends.tpu import TPUBackend
from tensor_ops_devices.checkpoint import load_checkpoint, save_checkpoint


class Model(nn.Module):
    """With shared parameters, a buffer, two dtypes and a tensor that is not contiguous."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.output = nn.Linear(16, 8, bias=False)
        self.output.weight = self.embedding.weight
        self.extra = nn.Parameter(torch.randn(3, 2).bfloat16().t())

    def forward(self, tokens):
        return self.output(self.norm(self.embedding(tokens)))


@pytest.fixture(params=["model.pt", "model.safetensors"])
def path(request, tmp_path):
    return tmp_path / request.param


def seeded(seed):
    torch.manual_seed(seed)
    return Model().eval()


@pytest.mark.filterwarnings("ignore::tensor_ops.BackendFallbackWarning")
@pytest.mark.parametrize("source", [CPUBackend, NVIDIABackend, TPUBackend])
@pytest.mark.parametrize("target", [CPUBackend, NVIDIABackend, TPUBackend])
def test_what_one_backend_saves_another_loads(source, target, path):
    tokens = torch.arange(8)
    first, second = source(), target()
    model = first.prepare_model(seeded(0))
    with torch.no_grad():
        expected = model(first.prepare_data(tokens)).cpu()
    save_checkpoint(model, path)
    other = second.prepare_model(seeded(1))
    load_checkpoint(other, path)
    with torch.no_grad():
        found = other(second.prepare_data(tokens)).cpu()
    assert torch.equal(found, expected) or first.device != second.device
    torch.testing.assert_close(found, expected)
    assert other.output.weight is other.embedding.weight
    for key, value in model.state_dict().items():
        assert torch.equal(value.cpu(), other.state_dict()[key].cpu())


def test_files_hold_tensors_of_the_cpu_in_standard_formats(path):
    save_checkpoint(seeded(0), path)
    if path.suffix == ".pt":
        state = torch.load(path, weights_only=True)
    else:
        from safetensors.torch import load_file

        state = load_file(path)
        assert "embedding.weight" in state
        assert "output.weight" not in state
    assert {str(each.device) for each in state.values()} == {"cpu"}
    assert torch.equal(state["extra"], seeded(0).extra)


def test_a_compiled_model_has_the_names_of_the_model(path):
    model = seeded(0)
    save_checkpoint(torch.compile(model, backend="eager"), path)
    other = seeded(1)
    load_checkpoint(other, path)
    assert torch.equal(other.extra, model.extra)
    save_checkpoint(model, path)
    load_checkpoint(torch.compile(other, backend="eager"), path)


def test_what_torch_save_has_written_of_a_compiled_model(tmp_path):
    model, other = seeded(0), seeded(1)
    torch.save(torch.compile(model, backend="eager").state_dict(), tmp_path / "model.pt")
    load_checkpoint(other, tmp_path / "model.pt")
    assert torch.equal(other.extra, model.extra)


def test_the_dtype_of_the_model_stays(path):
    save_checkpoint(seeded(0), path)
    other = seeded(1).bfloat16()
    load_checkpoint(other, path)
    assert other.embedding.weight.dtype == torch.bfloat16
    assert torch.equal(other.embedding.weight, seeded(0).embedding.weight.bfloat16())


def test_another_model_is_an_error_and_changes_nothing(path):
    save_checkpoint(nn.Linear(4, 4), path)
    model = nn.Linear(4, 4, bias=False)
    before = model.weight.clone()
    with pytest.raises(RuntimeError, match=r"of another model, and nothing was changed:[^$]*bias"):
        load_checkpoint(model, path)
    assert torch.equal(before, model.weight)
    with pytest.raises(RuntimeError, match="size mismatch"):
        load_checkpoint(nn.Linear(4, 2), path)


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    import pickle

    class Evil:
        def __reduce__(self):
            return exec, ("raise SystemExit",)

    torch.save({"weight": Evil()}, tmp_path / "model.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"[Ww]eights"):
        load_checkpoint(nn.Linear(2, 2), tmp_path / "model.pt")


def test_without_safetensors_the_error_says_what_to_do(monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(ImportError, match="pip install safetensors, or choose another suffix"):
        save_checkpoint(nn.Linear(2, 2), tmp_path / "model.safetensors")

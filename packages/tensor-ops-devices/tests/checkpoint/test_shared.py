"""Files with a value for each name of a tensor that the model has under several."""

import pytest
import torch
from torch import nn

from tensor_ops_devices.checkpoint import load_checkpoint, save_checkpoint


class Tied(nn.Module):
    """A language model's ends: one matrix for what goes in and what comes out."""

    def __init__(self, tie="parameter"):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(5, 4)
        self.norm = nn.LayerNorm(4)
        self.lm_head = nn.Linear(4, 5, bias=False)
        if tie == "parameter":
            self.lm_head.weight = self.embed.weight
        elif tie == "memory":
            self.lm_head.weight = nn.Parameter(self.embed.weight.data)


def write(state, kind, path):
    """Write a state dict as one of the files that are read, and return the file."""
    if kind == "safetensors":
        from safetensors.torch import save_file

        file = path / "model.safetensors"
        save_file(state, file)
        return file
    file = path / "model.pt"
    wrapped = {"wrapped": {f"module._orig_mod.{key}": each for key, each in state.items()}}
    contents = {"plain": state, "state_dict": {"state_dict": state, "epoch": 1}} | wrapped
    torch.save(contents[kind], file)
    return file


def values(**of):
    """A state dict in which every tensor has memory of its own."""
    state = {key: each.clone() for key, each in Tied("no").state_dict().items()}
    return state | {f"{key}.weight": each for key, each in of.items()}


KINDS = ["plain", "state_dict", "wrapped", "safetensors"]


@pytest.mark.parametrize("tie", ["parameter", "memory"])
@pytest.mark.parametrize("kind", KINDS)
def test_two_values_for_one_parameter_are_an_error(kind, tie, tmp_path):
    model = Tied(tie)
    before = {key: each.clone() for key, each in model.state_dict().items()}
    for embed, head in ((1.0, 2.0), (torch.nan, 1.0), (0.0, -0.0)):
        state = values(embed=torch.full((5, 4), embed), lm_head=torch.full((5, 4), head))
        file = write(state, kind, tmp_path)
        with pytest.raises(RuntimeError, match=r"'embed.weight' and 'lm_head.weight'") as caught:
            load_checkpoint(model, file)
        assert file.name in str(caught.value)
        assert "nothing was changed" in str(caught.value)
        assert all(torch.equal(each, before[key]) for key, each in model.state_dict().items())


@pytest.mark.parametrize("tie", ["parameter", "memory"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_same_value_twice_is_loaded(kind, tie, dtype, tmp_path):
    model = Tied(tie).to(dtype)
    weight = torch.randn(5, 4, generator=torch.Generator().manual_seed(1)).to(dtype)
    weight[0, :3] = torch.tensor([torch.nan, torch.inf, -0.0])
    load_checkpoint(model, write(values(embed=weight, lm_head=weight.clone()), kind, tmp_path))
    for found in (model.embed.weight, model.lm_head.weight):
        torch.testing.assert_close(found.detach(), weight, rtol=0, atol=0, equal_nan=True)


def test_values_of_two_dtypes_are_compared_in_that_of_the_model(tmp_path):
    exact = torch.arange(20.0).reshape(5, 4)
    file = write(values(embed=exact, lm_head=exact.half()), "plain", tmp_path)
    model = Tied()
    load_checkpoint(model, file)
    assert torch.equal(model.embed.weight, exact)
    file = write(values(embed=exact, lm_head=(exact + 1).half()), "plain", tmp_path)
    with pytest.raises(RuntimeError, match=r"'embed.weight' and 'lm_head.weight'"):
        load_checkpoint(Tied(), file)


def test_a_model_that_does_not_share_them_takes_both(tmp_path):
    state = values(embed=torch.zeros(5, 4), lm_head=torch.ones(5, 4))
    model = Tied("no")
    load_checkpoint(model, write(state, "plain", tmp_path))
    assert not model.embed.weight.any()
    assert model.lm_head.weight.all()


@pytest.mark.parametrize("tie", ["parameter", "memory"])
@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_a_model_that_does_not_share_them_takes_no_file_of_one_that_does(tie, suffix, tmp_path):
    path, model = tmp_path / f"model.{suffix}", Tied("no")
    save_checkpoint(Tied(tie), path)
    before = {key: each.clone() for key, each in model.state_dict().items()}
    with pytest.raises(RuntimeError, match=r"of another model, .* nothing was changed") as caught:
        load_checkpoint(model, path)
    assert "lm_head.weight" in str(caught.value)
    assert "issing" in str(caught.value)
    assert "Make the model as it was when it was saved" in str(caught.value)
    assert all(torch.equal(each, before[key]) for key, each in model.state_dict().items())
    load_checkpoint(Tied(tie), path)


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_one_tensor_of_a_state_dict_for_two_of_a_model_is_an_error(kind, tmp_path):
    file = write(Tied().state_dict(), kind, tmp_path)
    with pytest.raises(RuntimeError, match=r"'lm_head.weight' is missing, .* 'embed.weight'"):
        load_checkpoint(Tied("no"), file)
    load_checkpoint(Tied(), file)
    load_checkpoint(Tied("memory"), file)


def test_an_integer_buffer_without_dimensions(tmp_path):
    model = nn.Module()
    model.register_buffer("one", torch.tensor(1))
    model.register_buffer("other", model.one)
    torch.save({"one": torch.tensor(2), "other": torch.tensor(2)}, tmp_path / "model.pt")
    load_checkpoint(model, tmp_path / "model.pt")
    assert model.other.item() == 2
    torch.save({"one": torch.tensor(2), "other": torch.tensor(3)}, tmp_path / "model.pt")
    with pytest.raises(RuntimeError, match="'one' and 'other', which are one"):
        load_checkpoint(model, tmp_path / "model.pt")

"""Names of parameters in checkpoints, with and without what wrappers put before them."""

import pytest
import torch
from torch import nn

from tensor_ops_devices.checkpoint import load_checkpoint, save_checkpoint

NAMES = ["block.0.weight", "block.0.bias", "module.weight", "module.bias"]


class Model(nn.Module):
    """With a child whose own name is that of a wrapper."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.block = nn.Sequential(nn.Linear(4, 4))
        self.module = nn.Linear(4, 4)

    def forward(self, x):
        return self.module(self.block(x))


@pytest.fixture(scope="module", autouse=True)
def one_process():
    """The group of processes that DistributedDataParallel needs."""
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def with_children(wrap):
    def change(model):
        model.block[0] = wrap(model.block[0])
        return model

    return change


def compiled(model):
    return torch.compile(model, backend="eager")


DDP = nn.parallel.DistributedDataParallel
WRAPPED = {
    "plain": lambda model: model,
    "compiled": compiled,
    "compiled child": with_children(compiled),
    "data parallel": nn.DataParallel,
    "distributed": DDP,
    "distributed child": with_children(DDP),
    "compiled distributed": lambda model: compiled(DDP(model)),
    "distributed compiled": lambda model: DDP(compiled(model)),
    "distributed with a compiled child": lambda model: DDP(with_children(compiled)(model)),
}


def same(first, second):
    return all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize("kind", WRAPPED)
def test_a_file_has_the_names_of_the_model_itself(kind, suffix, tmp_path):
    path = tmp_path / f"model.{suffix}"
    model = WRAPPED[kind](Model(0))
    save_checkpoint(model, path)
    if suffix == "pt":
        found = torch.load(path)
    else:
        from safetensors.torch import load_file

        found = load_file(path)
    assert sorted(found) == sorted(NAMES)
    other = Model(1)
    other.load_state_dict(found)
    assert same(other, model)


@pytest.mark.parametrize("saved", WRAPPED)
@pytest.mark.parametrize("loaded", WRAPPED)
def test_what_torch_save_wrote_of_any_loads_into_any(saved, loaded, tmp_path):
    source, target = WRAPPED[saved](Model(0)), WRAPPED[loaded](Model(1))
    torch.save(source.state_dict(), tmp_path / "model.pt")
    assert load_checkpoint(target, tmp_path / "model.pt") == {}
    assert same(source, target)


def test_the_names_that_do_not_fit_are_in_the_error(tmp_path):
    path = tmp_path / "model.pt"
    state = compiled(DDP(Model())).state_dict()
    del state["_orig_mod.module.block.0.bias"]
    state["_orig_mod.module.another"] = torch.ones(1)
    torch.save(state, path)
    model = Model(1)
    before = [each.clone() for each in model.parameters()]
    with pytest.raises(RuntimeError) as caught:
        load_checkpoint(model, path)
    message = str(caught.value)
    assert f"load_checkpoint: {str(path)!r} is of another model" in message
    assert 'Missing key(s) in state_dict: "block.0.bias"' in message
    assert 'Unexpected key(s) in state_dict: "another"' in message
    assert message.count("block.0") == 1  # no other name is missing
    assert all(map(torch.equal, before, model.parameters()))


def test_versions_of_modules_are_kept(tmp_path):
    # Without its version BatchNorm takes a file for one of before it counted batches.
    model = compiled(nn.Sequential(nn.BatchNorm1d(2)))
    save_checkpoint(model, tmp_path / "model.pt")
    state = torch.load(tmp_path / "model.pt")
    assert state._metadata["0"]["version"] == 2
    del state["0.num_batches_tracked"]
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(RuntimeError, match=r"0\.num_batches_tracked"):
        load_checkpoint(model, tmp_path / "model.pt")
    del state._metadata["0"]["version"]
    torch.save(state, tmp_path / "model.pt")
    load_checkpoint(model, tmp_path / "model.pt")


def test_one_name_of_a_shared_tensor_is_enough(tmp_path):
    def tied():
        model = Model(1)
        model.module.weight = model.block[0].weight
        return model

    for name in ("module.weight", "block.0.weight"):
        state = tied().state_dict()
        state[name] = torch.full((4, 4), 3.0)
        del state["block.0.weight" if name == "module.weight" else "module.weight"]
        torch.save(state, tmp_path / "model.pt")
        model = compiled(tied())
        load_checkpoint(model, tmp_path / "model.pt")
        assert model.module.weight is model.block[0].weight
        assert torch.equal(model.module.weight, torch.full((4, 4), 3.0))

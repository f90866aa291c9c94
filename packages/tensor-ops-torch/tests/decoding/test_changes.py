"""What a decoder notices of changes to the weights that it was made from."""

import pytest
import torch
from model_families import greedy, small_model

from tensor_ops_torch import WeightsChangedError, decoder


@pytest.fixture
def model():
    return small_model()


@pytest.fixture
def fast(model):
    with decoder(model) as made:
        yield made


def up(model):
    return model.model.layers[0].mlp.up_proj


@torch.no_grad()
def multiply(model):
    up(model).weight.mul_(3)


def step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.tensor([[1, 2]]), labels=torch.tensor([[1, 2]])).loss.backward()
    optimizer.step()


def load(model):
    model.load_state_dict(small_model(seed=5).state_dict())


def assign(model):
    model.load_state_dict(small_model(seed=5).state_dict(), assign=True)


def replace_parameter(model):
    up(model).weight = torch.nn.Parameter(up(model).weight.detach().clone())


def replace_data(model):
    up(model).weight.data = up(model).weight.detach().clone()


def convert(model):
    model.to(torch.bfloat16)


def replace_module(model):
    model.model.layers[0].mlp.up_proj = torch.nn.Linear(64, 96, bias=False)


def replace_norm(model):
    model.model.norm.weight = torch.nn.Parameter(torch.ones(64))


@torch.no_grad()
def write_embedding(model):
    model.get_input_embeddings().weight[3] = 0


CHANGES = {
    multiply: r"layers\.0\.mlp\.up_proj\.weight was written to",
    step: "weight .* was written to",
    load: "weight .* was written to",
    assign: "weight .* was replaced",
    replace_parameter: r"up_proj\.weight was replaced",
    replace_data: r"up_proj\.weight has other memory",
    convert: "weight .* has other memory",
    replace_module: "the module 'up_proj' of a LlamaMLP was replaced",
    replace_norm: r"model\.norm\.weight was replaced",
    write_embedding: r"embed_tokens\.weight was written to",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_an_error_that_names_it(model, fast, change):
    fast.check_unchanged()
    change(model)
    with pytest.raises(WeightsChangedError, match=CHANGES[change]) as raised:
        greedy(fast, 1)
    assert "make the decoder again, by tensor_ops_torch.decoder(model)" in str(raised.value)
    with pytest.raises(WeightsChangedError):
        model.generate(torch.tensor([[1]]), max_new_tokens=1, custom_generate=fast)


def test_what_goes_through_data_is_not_noticed(model, fast):
    expected = greedy(fast, 8)
    up(model).weight.data.mul_(3)
    assert torch.equal(greedy(fast, 8), expected)
    assert not torch.equal(greedy(model, 8), expected)


def test_use_of_a_model_is_no_change(model, fast):
    expected = greedy(model, 8)
    model.train()
    model(torch.tensor([[1, 2]]), labels=torch.tensor([[1, 2]])).loss.backward()
    model.zero_grad()
    model.eval().requires_grad_(False)
    model(torch.tensor([[1, 2]]), output_hidden_states=True)
    assert torch.equal(greedy(fast, 8), expected)


def test_weights_of_inference_mode_are_told_by_their_memory():
    with torch.inference_mode():
        model = small_model()
    with decoder(model) as fast:
        greedy(fast, 1)
        with torch.inference_mode():
            replace_parameter(model)
        with pytest.raises(WeightsChangedError, match="was replaced"):
            greedy(fast, 1)

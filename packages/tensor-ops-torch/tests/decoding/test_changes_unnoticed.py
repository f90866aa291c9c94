"""Changes of a model that a decoder does not notice: the list of docs/guides/transformers.md."""

import pytest
import torch
from model_families import greedy, prompt, small_model
from transformers import AttentionInterface
from transformers.models.llama import modeling_llama

from tensor_ops_torch import decoder


@pytest.fixture
def model():
    return small_model()


def write_one_element(model, monkeypatch):
    model.model.layers[0].mlp.up_proj.weight.data[0, 1] += 5


def replace_function_of_transformers(model, monkeypatch):
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", lambda q, k, *args: (q, k))


def replace_function_of_torch(model, monkeypatch):
    monkeypatch.setattr(torch.nn.functional, "silu", torch.tanh)


def choose_own_attention(model, monkeypatch):
    def attend(module, query, key, value, *args, **kwargs):
        return torch.zeros_like(query).transpose(1, 2), None

    AttentionInterface.register("own", attend)
    model.set_attn_implementation("own")


UNNOTICED = [
    write_one_element,
    replace_function_of_transformers,
    replace_function_of_torch,
    choose_own_attention,
]


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("change", UNNOTICED, ids=lambda change: change.__name__)
def test_what_the_page_lists_is_not_noticed(model, change, before, monkeypatch):
    tokens, fast = prompt()["inputs"], decoder(model)
    with torch.no_grad():
        logits, expected = model(tokens).logits, greedy(fast, 8)
        change(model, monkeypatch)
        assert not torch.equal(model(tokens).logits, logits)
    if before and change is not write_one_element:
        fast.close()
        fast = decoder(model)
    with fast:
        fast.kernel.reset()
        assert torch.equal(greedy(fast, 8), expected)


def test_a_forward_of_a_class_that_was_replaced_before_is_not_noticed(model, monkeypatch):
    with decoder(model) as fast:
        expected = greedy(fast, 8)
    monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", lambda self, x: -x)
    assert not torch.equal(greedy(model, 8), expected)
    with decoder(model) as fast:
        assert torch.equal(greedy(fast, 8), expected)


def test_a_function_that_is_an_attribute_is_not_noticed():
    model = small_model("Gemma 1")
    tokens = prompt()["inputs"]
    with torch.no_grad(), decoder(model) as fast:
        logits, expected = model(tokens).logits, greedy(fast, 8)
        model.model.layers[0].mlp.act_fn.act = torch.tanh
        assert not torch.equal(model(tokens).logits, logits)
        fast.kernel.reset()
        assert torch.equal(greedy(fast, 8), expected)


def test_frequencies_of_a_converted_model_are_those_of_its_configuration():
    converted, exact = (small_model(dtype=torch.bfloat16) for _ in range(2))
    exact.model.rotary_emb = type(exact.model.rotary_emb)(exact.config)
    given = prompt(100)
    with torch.no_grad(), decoder(converted) as fast, decoder(exact) as other:
        logits = converted(given["inputs"]).logits
        assert not torch.equal(logits, exact(given["inputs"]).logits)
        assert torch.equal(greedy(fast, 8, **given), greedy(other, 8, **given))

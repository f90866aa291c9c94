"""Changes that a decoder notices of the model that it was made from."""

import itertools

import pytest
import torch
from model_families import greedy, prompt, small_model
from torch.nn.modules import module as of_all_modules
from transformers import LlamaConfig
from transformers.models.llama import modeling_llama

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


def write_data(model):
    up(model).weight.data.mul_(3)


def write_by_numpy(model):
    up(model).weight.detach().numpy()[:] *= 3


def write_nan(model):
    up(model).weight.data.fill_(torch.nan)


@torch.no_grad()
def write_frequencies(model):
    model.model.rotary_emb.inv_freq.mul_(0.5)


def write_data_of_frequencies(model):
    model.model.rotary_emb.inv_freq.data.mul_(0.5)


def replace_frequencies(model):
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq * 0.5


def scale_rotation(model):
    model.model.rotary_emb.attention_scaling = 2.0


def configure_rotation(model):
    model.config.rope_parameters["rope_theta"] = 100.0


def configure_rotation_of_its_own(model):
    rotation = {"rope_type": "default", "rope_theta": 100.0}
    model.model.rotary_emb.config = LlamaConfig(rope_parameters=rotation)


def replace_rotation(model):
    rotation = {"rope_type": "default", "rope_theta": 100.0}
    config = LlamaConfig(**{**model.config.to_dict(), "rope_parameters": rotation})
    model.model.rotary_emb = modeling_llama.LlamaRotaryEmbedding(config)


def scale_attention(model):
    model.model.layers[1].self_attn.scaling = 1.0


def scale_by_a_tensor(model):
    model.model.layers[1].self_attn.scaling = torch.tensor([1.0, 2.0])


def change_epsilon(model):
    model.model.norm.variance_epsilon = 0.5


def leave_layers_out(model):
    model.config.num_hidden_layers = 1


def negated(module, args, output):
    return -output


def hook(model):
    up(model).register_forward_hook(negated)


def hook_before(model):
    up(model).register_forward_pre_hook(lambda module, args: (-args[0],))


def hook_of_the_model(model):
    model.register_forward_hook(lambda module, args, output: output)


def set_forward(model):
    up(model).forward = torch.zeros_like


def set_forward_of_the_model(model):
    model.forward = lambda *args, **kwargs: None


def prepare_inputs(model):
    model.prepare_inputs_for_generation = lambda *args, **kwargs: None


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
    write_data: r"up_proj\.weight was written to",
    write_by_numpy: r"up_proj\.weight was written to",
    write_nan: r"up_proj\.weight was written to",
    write_frequencies: r"rotary_emb\.inv_freq was written to",
    write_data_of_frequencies: r"rotary_emb\.inv_freq was written to",
    replace_frequencies: r"rotary_emb\.inv_freq was replaced",
    scale_rotation: r"rotary_emb has attention_scaling 2\.0, expected 1\.0",
    configure_rotation: r"its configuration rope_parameters is .*100\.0.*, expected .*10000\.0",
    configure_rotation_of_its_own: r"rotary_emb has a configuration of its own, whose .* is",
    replace_rotation: "the module 'rotary_emb' of a LlamaModel was replaced",
    scale_attention: r"layers\.1\.self_attn has scaling 1\.0, expected 0\.25",
    scale_by_a_tensor: r"layers\.1\.self_attn has scaling tensor",
    change_epsilon: r"model\.norm has variance_epsilon 0\.5, expected 0\.001",
    leave_layers_out: "its configuration num_hidden_layers is 1, expected 2 as before",
    hook: r"layers\.0\.mlp\.up_proj has a forward hook, negated, .*remove it",
    hook_before: r"layers\.0\.mlp\.up_proj has a forward hook, .*remove it",
    hook_of_the_model: "the model has a forward hook, .*remove it",
    set_forward: r"up_proj has a forward of its own, set on the module, .*remove it",
    set_forward_of_the_model: "the model has a forward of its own, set on .*remove it",
    prepare_inputs: "the model has a prepare_inputs_for_generation of its own, .*remove it",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_an_error_that_names_it(model, fast, change):
    fast.check_unchanged()
    change(model)
    with pytest.raises(WeightsChangedError, match=CHANGES[change]) as raised:
        greedy(fast, 1)
    message = str(raised.value)
    assert "the model was changed after the decoder was made" in message
    assert "make the decoder again, by tensor_ops_torch.decoder(model)" in message or (
        "; remove it" in message
    )
    with pytest.raises(WeightsChangedError):
        model.generate(torch.tensor([[1]]), max_new_tokens=1, custom_generate=fast)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("SGD", torch.float32),  # in bfloat16 it writes nothing on CPUs
        *itertools.product(["Adam", "AdamW", "Adagrad"], [torch.float32, torch.bfloat16]),
    ],
)
def test_steps_of_fused_optimizers_are_noticed(kind, dtype):
    model = small_model(dtype=dtype)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-3, fused=True)
    with decoder(model) as fast:
        fast.check_unchanged()
        model(torch.tensor([[1, 2]]), labels=torch.tensor([[1, 2]])).loss.backward()
        optimizer.step()
        with pytest.raises(WeightsChangedError, match=r"weight .* was written to"):
            greedy(fast, 1)


@pytest.mark.parametrize(
    ("key", "found"), [("attn_logit_softcapping", r"self_attn has"), ("sliding_window", "has")]
)
def test_caps_and_windows_of_layers_are_noticed(key, found):
    model = small_model("Gemma 2")
    with decoder(model) as fast:
        setattr(model.model.layers[0].self_attn, key, 2)
        with pytest.raises(WeightsChangedError, match=rf"{found} {key} 2, expected"):
            greedy(fast, 1)


@pytest.mark.parametrize("key", ["final_logit_softcapping", "sliding_window", "layer_types"])
def test_what_the_configuration_says_of_a_step_is_noticed(key):
    model = small_model("Gemma 2")
    with decoder(model) as fast:
        setattr(model.config, key, None)
        with pytest.raises(
            WeightsChangedError, match=rf"its configuration {key} is None, expected"
        ):
            greedy(fast, 1)


def test_the_scale_of_an_embedding_is_noticed():
    model = small_model("Gemma 3")
    with decoder(model) as fast:
        model.model.embed_tokens.embed_scale.data.mul_(2)
        with pytest.raises(WeightsChangedError, match=r"embed_scale was written to"):
            greedy(fast, 1)


@pytest.mark.parametrize(
    "register",
    [
        of_all_modules.register_module_forward_hook,
        of_all_modules.register_module_forward_pre_hook,
    ],
)
def test_hooks_of_all_modules_are_noticed(fast, register):
    handle = register(lambda *args: None)
    try:
        with pytest.raises(WeightsChangedError, match=r"all modules have a forward hook, .*remove"):
            greedy(fast, 1)
    finally:
        handle.remove()
    greedy(fast, 1)


def test_a_forward_of_a_class_is_noticed(fast, monkeypatch):
    monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", lambda self, x: -x)
    with pytest.raises(WeightsChangedError, match=r"norm is of a class whose forward was replaced"):
        greedy(fast, 1)


def test_the_steps_after_a_hook_was_removed_are_as_before(model, fast):
    expected = greedy(model, 8)
    handle = up(model).register_forward_hook(negated)
    with pytest.raises(WeightsChangedError):
        greedy(fast, 8)
    handle.remove()
    assert torch.equal(greedy(fast, 8), expected)


def test_use_of_a_model_is_no_change(model, fast):
    expected = greedy(model, 8)
    model.train()
    model(torch.tensor([[1, 2]]), labels=torch.tensor([[1, 2]])).loss.backward()
    model.zero_grad()
    model.eval().requires_grad_(False)
    model(torch.tensor([[1, 2]]), output_hidden_states=True)
    model.config.use_cache, model.config.pad_token_id, model.config.tag = False, 3, "new"
    model.set_attn_implementation("sdpa")
    model.enable_input_require_grads()
    assert torch.equal(greedy(fast, 8), expected)


def test_a_model_may_generate_by_its_decoder(model, fast):
    expected = fast.generate([[5, 6, 7]], max_new_tokens=3)
    model.generate = fast.generate
    try:
        assert torch.equal(model.generate([[5, 6, 7]], max_new_tokens=3), expected)
    finally:
        del model.generate


def test_what_no_step_reads_is_no_change(model, fast):
    model.model.register_buffer("steps", torch.zeros(1, dtype=torch.int64))
    model.config.attention_dropout, before = 0.1, model.config.attention_dropout
    try:
        with decoder(model) as made:
            model.model.steps += 1
            for each in (fast, made):
                each.check_unchanged()
    finally:
        del model.model.steps
        model.config.attention_dropout = before


def test_frequencies_that_each_forward_writes_are_no_change():
    rotation = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 8,
        "long_factor": [2.0] * 8,
        "original_max_position_embeddings": 16,
    }
    model = small_model("Phi 3", rope_parameters=rotation, partial_rotary_factor=1.0)
    greedy(model, 1, **prompt(24))  # which leaves those of long sequences
    with decoder(model, max_seq_length=16) as fast:
        expected = greedy(model, 4)
        assert torch.equal(greedy(fast, 4), expected)
        greedy(model, 1, **prompt(24))
        assert torch.equal(greedy(fast, 4), expected)
        model.model.rotary_emb.original_inv_freq.mul_(2)
        with pytest.raises(WeightsChangedError, match="original_inv_freq was written to"):
            greedy(fast, 1)


def test_weights_of_inference_mode_are_told_by_their_memory():
    with torch.inference_mode():
        model = small_model()
    with decoder(model) as fast:
        greedy(fast, 1)
        with torch.inference_mode():
            replace_parameter(model)
        with pytest.raises(WeightsChangedError, match="was replaced"):
            greedy(fast, 1)

"""Models whose code or settings are not what the engine would run are refused, by name."""

import pytest
import torch
import transformers
from model_families import greedy, small_model

import tensor_ops_torch
from tensor_ops_torch import UnsupportedModelError, decoder


def other_layer(model):
    model.model.layers[1].mlp.gate_proj = torch.nn.Linear(64, 96, bias=True)


class ReversedNorm(torch.nn.Module):
    """A norm of another class."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64))

    def forward(self, x):
        return -x * self.weight


def other_class(model):
    model.model.norm = ReversedNorm()


def other_epsilon(model):
    model.model.norm.variance_epsilon = 0.5


def other_scale(model):
    model.model.layers[0].self_attn.scaling = 1.0


def hook(model):
    model.model.layers[0].register_forward_hook(lambda module, args, output: output)


def forward(model):
    model.model.norm.forward = lambda x: x


def pre_hook(model):
    model.model.layers[0].mlp.register_forward_pre_hook(lambda module, args: args)


def prepared_inputs(model):
    model.prepare_inputs_for_generation = lambda *args, **kwargs: {}


@torch.no_grad()
def written_frequencies(model):
    model.model.rotary_emb.inv_freq.mul_(0.5)


def other_frequencies(model):
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq[:4]


def other_rotation(model):
    rotation = {"rope_type": "default", "rope_theta": 100.0}
    config = transformers.LlamaConfig(**{**model.config.to_dict(), "rope_parameters": rotation})
    model.model.rotary_emb = type(model.model.rotary_emb)(config)


def configured_rotation(model):
    model.config.rope_parameters["rope_theta"] = 100.0


def kind_of_rotation(model):
    model.model.rotary_emb.rope_type = "dynamic"


def scaled_rotation(model):
    model.model.rotary_emb.attention_scaling = 2.0


def more_modules(model):
    model.model.layers[0].extra = torch.nn.Linear(2, 2)


def fewer_layers(model):
    del model.model.layers[1]


def parametrization(model):
    torch.nn.utils.parametrizations.weight_norm(model.model.layers[0].mlp.up_proj)


def double(model):
    model.double()


def mixed(model):
    model.model.norm.double()


class Marked(torch.Tensor):
    """A tensor of another class, as those are that libraries quantize."""


def subclass(model):
    weight = model.model.norm.weight.detach().as_subclass(Marked)
    model.model.norm.weight = torch.nn.Parameter(weight)


def without_values(model):
    model.model.norm.to("meta")


CHANGES = {
    other_layer: r"layers\.1\.mlp\.gate_proj has weight, bias; expected weight",
    other_class: r"model\.norm is a .*ReversedNorm, expected the .*LlamaRMSNorm",
    other_epsilon: r"model\.norm has variance_epsilon 0\.5, expected 0\.001",
    other_scale: r"layers\.0\.self_attn has scaling 1\.0, expected 0\.25",
    hook: r"layers\.0 has a forward hook, .*lambda.*remove it",
    forward: r"model\.norm has a forward of its own",
    pre_hook: r"layers\.0\.mlp has a forward hook, .*lambda.*remove it",
    prepared_inputs: r"the model has a prepare_inputs_for_generation of its own, .*remove it",
    written_frequencies: r"rotary_emb has other values of inv_freq than its configuration gives",
    other_frequencies: r"rotary_emb has no inv_freq of shape \(8,\), which its class has",
    other_rotation: r"rotary_emb has a configuration of its own, whose rope_parameters is .*100",
    configured_rotation: r"rotary_emb has other values of inv_freq than its configuration gives",
    kind_of_rotation: r"rotary_emb has rope_type 'dynamic', expected 'default'",
    scaled_rotation: r"rotary_emb has attention_scaling 2\.0, expected 1\.0",
    more_modules: r"the model has model\.layers\.0\.extra, a Linear",
    fewer_layers: r"the model has no model\.layers\.1,",
    parametrization: r"up_proj is a .*Parametrized",
    double: "is of dtype float64, which is not supported; supported are float32, float16, bfloat16",
    mixed: r"model\.norm\.weight.* is of dtype float64",
    subclass: r"model\.norm\.weight is a .*Marked, .*expected a torch\.Tensor",
    without_values: r"model\.norm\.weight is on the device meta",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_model_that_was_changed_is_refused(change):
    model = small_model()
    change(model)
    with pytest.raises(UnsupportedModelError, match=CHANGES[change]):
        decoder(model)


@pytest.mark.parametrize(
    "register",
    [
        torch.nn.modules.module.register_module_forward_hook,
        torch.nn.modules.module.register_module_forward_pre_hook,
    ],
)
def test_hooks_of_all_modules_are_refused(register):
    handle = register(lambda *args: None)
    try:
        with pytest.raises(
            UnsupportedModelError, match=r"all modules have a forward hook, .*lambda"
        ):
            decoder(small_model())
    finally:
        handle.remove()


@pytest.mark.parametrize("family", ["Gemma 1", "Gemma 2", "Gemma 3"])
def test_another_scale_of_the_embedding_is_refused(family):
    model = small_model(family)
    model.model.embed_tokens.embed_scale.mul_(2)
    with pytest.raises(UnsupportedModelError, match="other values of embed_scale"):
        decoder(model)


def test_other_frequencies_of_some_layers_are_refused():
    model = small_model("Gemma 3")
    model.model.rotary_emb.sliding_attention_inv_freq.mul_(2)
    with pytest.raises(UnsupportedModelError, match="other values of sliding_attention_inv_freq"):
        decoder(model)


def test_what_no_step_computes_with_may_be_configured_anew():
    model = small_model()
    model.config.pad_token_id, model.config.use_cache = 3, False
    with decoder(model) as fast:
        assert torch.equal(greedy(fast, 8), greedy(model, 8))


def test_families_that_the_engine_does_not_have_are_refused():
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 64}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    with pytest.raises(
        UnsupportedModelError, match=r"unknown architecture 'GPT2LMHeadModel'.*Qwen"
    ):
        decoder(model)


def test_settings_that_a_family_does_not_have_are_refused():
    model = small_model(hidden_act="gelu")
    with pytest.raises(UnsupportedModelError, match="hidden_act is 'gelu'; only 'silu' is"):
        decoder(model)


class Linear8bit(torch.nn.Linear):
    """A layer of another library."""


@pytest.mark.parametrize("as_dict", [False, True])
def test_weights_in_a_format_of_another_library_are_refused(as_dict):
    model = small_model()
    settings = transformers.BitsAndBytesConfig(load_in_8bit=True)
    model.config.quantization_config = settings.to_dict() if as_dict else settings
    with decoder(model) as fast:  # these are plain numbers, as those of a GGUF file are
        assert torch.equal(greedy(fast, 8), greedy(model, 8))
    model.model.layers[0].mlp.up_proj = Linear8bit(64, 96, bias=False)
    with pytest.raises(UnsupportedModelError, match=r"quantized by bitsandbytes .*Linear8bit"):
        decoder(model)


def test_swapped_modules_compute_the_same():
    model = small_model()
    expected = greedy(model, 8)
    assert tensor_ops_torch.prepare_model_with_custom_kernels(model) is model
    with decoder(model) as fast:
        assert torch.equal(greedy(fast, 8), expected)


def test_a_compiled_model_is_the_model_within():
    model = small_model()
    with decoder(torch.compile(model, backend="eager")) as fast:
        assert torch.equal(greedy(fast, 8), greedy(model, 8))

"""The parts of a model that peft has changed: merged adapters, and those merged while packing."""

import pytest
import torch
from model_families import greedy, small_model

from tensor_ops_torch import UnsupportedModelError, WeightsChangedError, decoder
from tensor_ops_torch.decoding.named_modules import named_modules_of, weights_of

peft = pytest.importorskip("peft")

# peft asks transformers in an old way.
OLD_NAME = "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
pytestmark = pytest.mark.filterwarnings(OLD_NAME)

# Adapters that differ in what they change and how.
ADAPTERS = {
    "LoRA": {},
    "DoRA": {"use_dora": True},
    "LoRA of the embedding and the head": {"target_modules": ["q_proj", "embed_tokens", "lm_head"]},
    "LoRA with a head of its own": {"modules_to_save": ["lm_head"]},
    "LoRA with biases": {"lora_bias": True, "target_modules": ["q_proj", "v_proj"]},
}


def adapted(**settings):
    """Return a model with a random adapter."""
    settings = {"r": 4, "target_modules": ["q_proj", "v_proj", "down_proj"], **settings}
    config = peft.LoraConfig(task_type="CAUSAL_LM", lora_alpha=8, **settings)
    made = peft.get_peft_model(small_model("Llama 3", tied=False), config).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.2)
            elif "modules_to_save" in name:
                parameter.normal_(0, 0.3)
    return made


@pytest.mark.parametrize("kind", ADAPTERS)
def test_adapters_are_merged_while_packing_and_the_model_stays(kind):
    model = adapted(**ADAPTERS[kind])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    expected = greedy(model, 16)
    with model.disable_adapter():
        assert not torch.equal(greedy(model, 16), expected)
    with pytest.raises(UnsupportedModelError, match=r"not merged, default: .*merge=True"):
        decoder(model)
    with decoder(model, merge=True) as fast:
        assert torch.equal(greedy(fast, 16), expected)
        assert fast.explain().merged == ("default",)
        assert "merged while packing: default" in str(fast.explain())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_merged_adapters_need_nothing():
    model = adapted()
    expected = greedy(model, 16)
    model.merge_adapter()
    with decoder(model) as fast:
        assert torch.equal(greedy(fast, 16), expected)
        assert fast.explain().merged == ()
        model.unmerge_adapter()  # which writes through .data
        with pytest.raises(WeightsChangedError, match="the adapters of model"):
            greedy(fast, 1)
    with decoder(model.merge_and_unload()) as fast:
        assert torch.equal(greedy(fast, 16), expected)


def test_several_adapters_are_merged_as_they_are_active():
    model = adapted()
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj", "k_proj"])
    model.add_adapter("second", config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "second" in name:
                parameter.normal_(0, 0.3)
    for active in (["second"], ["default", "second"]):
        model.base_model.set_adapter(active)
        with decoder(model, merge=True) as fast:
            assert torch.equal(greedy(fast, 16), greedy(model, 16))
            assert fast.explain().merged == tuple(sorted(active))
            model.base_model.set_adapter("default" if active == ["second"] else "second")
            with pytest.raises(WeightsChangedError, match="activated"):
                greedy(fast, 1)


def test_a_disabled_adapter_is_none():
    model = adapted()
    with model.disable_adapter():
        expected = greedy(model, 8)
        with decoder(model) as fast:
            assert torch.equal(greedy(fast, 8), expected)
            assert fast.explain().merged == ()


def test_changed_weights_of_an_adapter_are_noticed():
    model = adapted()
    with decoder(model, merge=True) as fast:
        with torch.no_grad():
            model.base_model.model.model.layers[0].self_attn.q_proj.lora_B["default"].weight.mul_(2)
        with pytest.raises(WeightsChangedError, match=r"lora_B\.default\.weight was written to"):
            greedy(fast, 1)


@pytest.mark.parametrize("change", ["scale_layer", "set_scale", "unscale_layer"])
def test_another_scale_of_an_adapter_is_noticed(change):
    model = adapted()
    layer = model.base_model.model.model.layers[0].self_attn.q_proj
    with decoder(model, merge=True) as fast:
        if change == "set_scale":
            layer.set_scale("default", 3)
        else:
            getattr(layer, change)(3)
        with pytest.raises(WeightsChangedError, match=r"adapters of .*q_proj .* scaled"):
            greedy(fast, 1)
    with decoder(model, merge=True) as fast:
        assert torch.equal(greedy(fast, 16), greedy(model, 16))


def test_the_scale_of_a_merged_adapter_is_that_of_its_merge():
    model = adapted()
    model.merge_adapter()
    with decoder(model) as fast:
        model.base_model.model.model.layers[0].self_attn.q_proj.scale_layer(3)
        assert torch.equal(greedy(fast, 16), greedy(model, 16))


@pytest.mark.parametrize("where", ["q_proj", "q_proj.lora_A.default"])
def test_hooks_of_adapters_are_noticed(where):
    model = adapted()
    layer = model.get_submodule(f"base_model.model.model.layers.0.self_attn.{where}")
    with decoder(model, merge=True) as fast:
        handle = layer.register_forward_hook(lambda module, args, output: -output)
        with pytest.raises(WeightsChangedError, match=r"has a forward hook"):
            greedy(fast, 1)
    with pytest.raises(UnsupportedModelError, match=r"has a forward hook"):
        decoder(model, merge=True)
    handle.remove()
    with decoder(model, merge=True) as fast:
        assert torch.equal(greedy(fast, 16), greedy(model, 16))


def test_adapters_of_parameters_are_merged_and_their_use_is_no_change():
    settings = {"target_modules": [], "target_parameters": ["q_proj.weight", "down_proj.weight"]}
    model = adapted(**settings)
    expected = greedy(model, 16)  # which parametrizes the weights for a time
    with decoder(model, merge=True) as fast:
        for _ in range(2):
            assert torch.equal(greedy(fast, 16), expected)
            assert torch.equal(greedy(model, 16), expected)
        with torch.no_grad():
            model.base_model.model.model.layers[0].self_attn.q_proj.base_layer.weight[0, 1] += 1
        with pytest.raises(WeightsChangedError, match=r"q_proj\.weight was written to"):
            greedy(fast, 1)


@pytest.mark.filterwarnings("ignore:`lora_bias=True` was passed")
def test_biases_of_adapters_of_layers_without_one_are_refused():
    settings = {"lora_bias": True, "target_modules": ["q_proj", "down_proj"]}
    with pytest.raises(UnsupportedModelError, match=r"layers\.0\.mlp\.down_proj .*'default'.*bias"):
        decoder(adapted(**settings), merge=True)


def test_what_peft_cannot_merge_is_an_error_that_names_the_module(monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("no such merge")

    model = adapted()
    monkeypatch.setattr(peft.tuners.lora.Linear, "merge", fail)
    with pytest.raises(UnsupportedModelError, match=r"q_proj, default: no such merge"):
        decoder(model, merge=True)


def test_merged_weights_are_released():
    model = adapted()
    expected = greedy(model, 8)
    with decoder(model, merge=True, release=True) as fast:
        assert torch.equal(greedy(fast, 8), expected)
    own = [each for name, each in model.named_parameters() if "lora_" not in name]
    assert {each.device.type for each in own} == {"meta"}


def test_adapters_of_prompts_are_refused():
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    model = peft.get_peft_model(small_model(), config)
    with pytest.raises(UnsupportedModelError, match="PROMPT_TUNING change the prompt"):
        decoder(model, merge=True)


def test_weights_have_the_names_of_files(tmp_path):
    model = small_model("Phi 3", tied=False)
    found = weights_of(named_modules_of(model, merge=False))
    assert found.keys() == model.state_dict().keys()
    without = small_model("Llama 3", tied=False).state_dict().keys()
    assert weights_of(named_modules_of(adapted().get_base_model(), merge=True)).keys() == without


def test_adapters_that_are_not_merged_may_come_and_go():
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"])
    model = peft.get_peft_model(small_model("Llama 3", tied=False), config).eval()
    with decoder(model, merge=True) as fast:
        model.add_adapter("other", config)
        fast.check_unchanged()
        model.delete_adapter("other")
        fast.check_unchanged()

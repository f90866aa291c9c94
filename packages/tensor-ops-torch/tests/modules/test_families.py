"""Families of models of transformers, small: what is swapped, by name, and what stays as it was.

`FAMILIES` states for each how many modules of it each op computes. A count that changes means
that something else is recognised; it is stated here again, so that nothing is lost unnoticed.
"""

import copy
import functools
import os
from dataclasses import dataclass

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

from tensor_ops_torch import restore_model, swap_modules, swap_report

# An output in float32 may be so far from that in float64, relative to the largest of its tensor.
TOLERANCE = 1e-5
VOCABULARY = 99
TOKENS = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
SMALL = TOKENS | {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GROUPED = SMALL | {"num_key_value_heads": 2, "head_dim": 16}
# The fast implementation of experts has no float64.
EAGER = {"experts_implementation": "eager"}
EXPERTS = EAGER | {"num_local_experts": 4, "num_experts_per_tok": 2}
LATENT = EAGER | {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
STATE_SPACE = {
    "mamba_d_ssm": 64,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_chunk_size": 8,
    "mamba_rms_norm": True,
}
IMAGES = {"image_size": 16, "patch_size": 8, "num_channels": 3}
TOWER = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "projection_dim": 32,
}
T5 = TOKENS | {
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 96,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
    "tie_word_embeddings": False,
}


@dataclass(frozen=True)
class Family:
    """A model, and what swapping makes of it.

    Attributes
    ----------
    model, config : str
        Names of classes of transformers.
    settings : dict
        What its configuration is made of.
    counts : dict
        How many modules each op computes.
    inputs : tuple of str
        The arguments of a call, keys of `INPUTS`.
    generates : bool
        Whether it has a method `generate`.
    """

    model: str
    config: str
    settings: dict
    counts: dict
    inputs: tuple = ("input_ids",)
    generates: bool = True


SEQ2SEQ = ("input_ids", "decoder_input_ids")
LLAMA = {"rms_norm": 5, "silu_mul": 2, "silu": 2}
FAMILIES = {
    "Llama": Family("LlamaForCausalLM", "LlamaConfig", GROUPED, LLAMA),
    "Mistral": Family("MistralForCausalLM", "MistralConfig", GROUPED, LLAMA),
    # Its experts hold their weights in one tensor, not in linear layers.
    "Mixtral": Family(
        "MixtralForCausalLM", "MixtralConfig", GROUPED | EXPERTS, {"rms_norm": 5, "silu": 2}
    ),
    "Qwen2": Family("Qwen2ForCausalLM", "Qwen2Config", GROUPED, LLAMA),
    "Qwen3": Family("Qwen3ForCausalLM", "Qwen3Config", GROUPED, LLAMA | {"rms_norm": 9}),
    "Gemma3": Family(
        "Gemma3ForCausalLM", "Gemma3TextConfig", GROUPED, {"rms_norm": 13, "gelu_mul": 2, "gelu": 2}
    ),
    "Phi3": Family("Phi3ForCausalLM", "Phi3Config", GROUPED, LLAMA),
    "DeepSeek-V3": Family(
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        SMALL | LATENT,
        {"rms_norm": 9, "silu_mul": 2, "silu": 3},
    ),
    # Not its norms, which have no weight.
    "OLMo": Family(
        "OlmoForCausalLM", "OlmoConfig", SMALL, {"layer_norm": 5, "silu_mul": 2, "silu": 2}
    ),
    "OLMo2": Family("Olmo2ForCausalLM", "Olmo2Config", SMALL, LLAMA | {"rms_norm": 9}),
    "GPT-2": Family(
        "GPT2LMHeadModel",
        "GPT2Config",
        TOKENS | {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64},
        {"layer_norm": 5, "gelu": 2},
    ),
    "GPT-NeoX": Family("GPTNeoXForCausalLM", "GPTNeoXConfig", SMALL, {"layer_norm": 5, "gelu": 2}),
    # Not its norms with a gate.
    "Mamba2": Family(
        "Mamba2ForCausalLM",
        "Mamba2Config",
        TOKENS
        | {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_heads": 8,
            "head_dim": 16,
            "state_size": 16,
            "n_groups": 2,
            "chunk_size": 8,
        },
        {"rms_norm": 3, "silu": 2},
    ),
    # Not its MLPs, which scale the gate and their results. Its norms with a gate are swapped for
    # calls without one, and it makes none.
    "Falcon-H1": Family(
        "FalconH1ForCausalLM",
        "FalconH1Config",
        GROUPED | STATE_SPACE,
        {"rms_norm": 5, "silu_mul": 2, "silu": 4},
    ),
    "BERT": Family(
        "BertForMaskedLM", "BertConfig", SMALL, {"layer_norm": 6, "gelu": 3}, generates=False
    ),
    "T5": Family("T5ForConditionalGeneration", "T5Config", T5, {"rms_norm": 12}, SEQ2SEQ),
    # Not its gated MLPs, which have dropout.
    "T5 v1.1": Family(
        "T5ForConditionalGeneration",
        "T5Config",
        T5 | {"feed_forward_proj": "gated-gelu"},
        {"rms_norm": 12, "gelu": 4},
        SEQ2SEQ,
    ),
    "Whisper": Family(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        TOKENS
        | {
            "d_model": 64,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 96,
            "decoder_ffn_dim": 96,
            "num_mel_bins": 8,
            "max_source_positions": 12,
            "max_target_positions": 48,
            "decoder_start_token_id": 1,
        },
        {"layer_norm": 12, "gelu": 4},
        ("input_features", "decoder_input_ids"),
    ),
    "ViT": Family(
        "ViTForImageClassification",
        "ViTConfig",
        TOWER | IMAGES,
        {"layer_norm": 5, "gelu": 2},
        ("pixel_values",),
        generates=False,
    ),
    # Its activation is x * sigmoid(1.702 * x), which is no op.
    "CLIP": Family(
        "CLIPModel",
        "CLIPConfig",
        {
            "text_config": SMALL | {"projection_dim": 32, "eos_token_id": 2},
            "vision_config": TOWER | IMAGES,
            "projection_dim": 32,
        },
        {"layer_norm": 11},
        ("input_ids", "pixel_values"),
        generates=False,
    ),
}
GENERATING = [name for name, family in FAMILIES.items() if family.generates]


def ids(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (2, 7), generator=generator)


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


INPUTS = {
    "input_ids": functools.partial(ids, 1),
    "decoder_input_ids": functools.partial(ids, 2),
    "input_features": functools.partial(normal, 2, 8, 24),
    "pixel_values": functools.partial(normal, 2, 3, 16, 16),
}


def inputs_of(name, dtype=torch.float32):
    made = {each: INPUTS[each]() for each in FAMILIES[name].inputs}
    return {
        each: value.to(dtype) if value.is_floating_point() else value
        for each, value in made.items()
    }


@functools.cache
def made(name):
    """A model with random weights, the same at every call."""
    family = FAMILIES[name]
    torch.manual_seed(0)
    model = getattr(transformers, family.model)(
        getattr(transformers, family.config)(**family.settings)
    )
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for each in model.parameters():
            drawn = torch.randn(each.shape, generator=generator)
            if each.ndim < 2:
                # Norms start at one, or zero where one is added: nothing to tell weights by.
                each.add_(0.2 * drawn)
            else:
                # Large enough for every layer to change what the model returns.
                each.copy_(drawn * each.shape[-1] ** -0.5)
    return model.eval()


@pytest.fixture(params=FAMILIES)
def name(request):
    return request.param


@pytest.fixture
def model(name):
    return copy.deepcopy(made(name))


def outputs(model, name, dtype=torch.float32):
    """The floating-point tensors that a call returns, by name."""
    with torch.no_grad():
        found = model(**inputs_of(name, dtype))
    return {
        key: value
        for key, value in found.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }


def in_float64(name):
    return outputs(copy.deepcopy(made(name)).double(), name, torch.float64)


def stored(model):
    """The tensors of `state_dict()`: dtype, shape and bytes of each, in its order."""
    return [
        (key, each.dtype, each.shape, each.numpy().tobytes())
        for key, each in model.state_dict().items()
    ]


def test_what_is_swapped(name, model):
    report = swap_modules(model)
    assert report.counts == FAMILIES[name].counts
    assert swap_report(model) == report


def test_outputs(name, model):
    exact, before = in_float64(name), outputs(model, name)
    swap_modules(model)
    after = outputs(model, name)
    assert after.keys() == before.keys() == exact.keys()
    for key, good in exact.items():
        allowed = TOLERANCE * good.abs().max().item()
        for found in (before[key], after[key]):
            torch.testing.assert_close(found.double(), good.double(), rtol=0, atol=allowed)


def test_the_ops_run(name, model):
    """Rounding differs, or the comparison of outputs would be one of a model with itself."""
    before = outputs(model, name)
    swap_modules(model)
    after = outputs(model, name)
    assert any(not torch.equal(after[key], value) for key, value in before.items())


@pytest.mark.parametrize("name", GENERATING)
def test_generated_tokens(name, model):
    prompt = inputs_of(name)
    prompt.pop("decoder_input_ids", None)
    settings = {"max_new_tokens": 8, "do_sample": False}
    before = model.generate(**prompt, **settings)
    swap_modules(model)
    assert torch.equal(model.generate(**prompt, **settings), before)


def test_state_dict_stays(name, model):
    before = stored(model)
    swap_modules(model)
    assert stored(model) == before
    outputs(model, name)
    assert stored(model) == before
    assert stored(restore_model(model)) == before


def test_restored(name, model):
    classes = [type(each) for each in model.modules()]
    before = outputs(model, name)
    swap_modules(model)
    assert [type(each) for each in model.modules()] != classes
    assert restore_model(model) is model
    assert [type(each) for each in model.modules()] == classes
    after = outputs(model, name)
    assert all(torch.equal(after[key], value) for key, value in before.items())

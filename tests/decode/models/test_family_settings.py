"""Settings of families: as older versions of transformers wrote them, and in GGUF."""

import numpy as np
import pytest
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from family_files import SIZES, Files
from tensor_ops_decode import FileFormatError
from tensor_ops_decode.models import decoder_of

# The settings of published models, but for their sizes.
OLD = {
    "Llama 3.2": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "head_dim": 12,
        "hidden_act": "silu",
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
    },
    "Mistral 0.1": {
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "hidden_act": "silu",
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
        "tie_word_embeddings": False,
    },
    "Qwen 2.5": {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_act": "silu",
        "max_position_embeddings": 32768,
        "max_window_layers": 4,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
    },
    "Qwen 2.5 for long texts": {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "max_position_embeddings": 32768,
        "rope_scaling": {
            "factor": 4.0,
            "original_max_position_embeddings": 32768,
            "type": "yarn",
        },
        "rope_theta": 1000000.0,
    },
    "Qwen 2 with windows": {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "max_position_embeddings": 32768,
        "max_window_layers": 4,
        "sliding_window": 1024,
        "use_sliding_window": True,
    },
    "Phi 3 mini 128k": {
        "model_type": "phi3",
        "architectures": ["Phi3ForCausalLM"],
        "hidden_act": "silu",
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
            "type": "longrope",
        },
        "rope_theta": 10000.0,
        "sliding_window": 262144,
        "pad_token_id": 0,
    },
    "Gemma 1": {
        "model_type": "gemma",
        "architectures": ["GemmaForCausalLM"],
        "head_dim": 256,
        "hidden_act": "gelu",
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-06,
        "rope_theta": 10000.0,
    },
    "Gemma 2": {
        "model_type": "gemma2",
        "architectures": ["Gemma2ForCausalLM"],
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 8192,
        "query_pre_attn_scalar": 144,
        "sliding_window": 4096,
        "rope_theta": 10000.0,
    },
    "Gemma 3": {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 32768,
        "query_pre_attn_scalar": 256,
        "rope_local_base_freq": 10000,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "rope_theta": 1000000,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
    },
    "SmolLM 3": {
        "model_type": "smollm3",
        "architectures": ["SmolLM3ForCausalLM"],
        "attention_bias": False,
        "hidden_act": "silu",
        "layer_types": ["full_attention"] * 7,
        "max_position_embeddings": 65536,
        "max_window_layers": 28,
        "mlp_bias": False,
        "no_rope_layer_interval": 4,
        "no_rope_layers": [1, 1, 1, 0, 1, 1, 1],
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 5000000.0,
        "sliding_window": None,
        "use_sliding_window": False,
    },
    "Granite 3.3": {
        "model_type": "granite",
        "architectures": ["GraniteForCausalLM"],
        "attention_bias": False,
        "attention_multiplier": 0.015625,
        "embedding_multiplier": 12.0,
        "hidden_act": "silu",
        "logits_scaling": 8.0,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "residual_multiplier": 0.22,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 10000000.0,
        "tie_word_embeddings": True,
    },
    "OLMo 2": {
        "model_type": "olmo2",
        "architectures": ["Olmo2ForCausalLM"],
        "attention_bias": False,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 500000,
        "tie_word_embeddings": False,
    },
    "OLMo 3": {
        "model_type": "olmo3",
        "architectures": ["Olmo3ForCausalLM"],
        "attention_bias": False,
        "hidden_act": "silu",
        "layer_types": [*["sliding_attention"] * 3, "full_attention"] + ["sliding_attention"] * 3,
        "max_position_embeddings": 65536,
        "rms_norm_eps": 1e-06,
        "rope_scaling": {
            "attention_factor": 1.2079441541679836,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 8.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "yarn",
        },
        "rope_theta": 500000,
        "sliding_window": 4096,
        "tie_word_embeddings": False,
    },
    "Ministral 3": {
        "model_type": "ministral3",
        "architectures": ["Ministral3ForCausalLM"],
        "head_dim": 128,
        "hidden_act": "silu",
        "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 16.0,
            "llama_4_scaling_beta": 0.1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 16384,
            "rope_theta": 1000000.0,
            "rope_type": "yarn",
            "type": "yarn",
        },
        "sliding_window": None,
        "tie_word_embeddings": True,
    },
}


@pytest.mark.parametrize("name", OLD)
def test_old_settings_mean_what_transformers_makes_of_them(name):
    old = SIZES | OLD[name]
    config = transformers.AutoConfig.for_model(**old)
    new = config.to_dict() | {"architectures": old["architectures"]}
    assert decoder_of(Files(old)) == decoder_of(Files(new))


def test_a_dynamic_rotation_is_that_of_the_longest_sequence():
    rotation = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 3.0}
    settings = SIZES | {"max_position_embeddings": 64, "rope_parameters": rotation}
    rope = decoder_of(Files(settings | {"architectures": ["LlamaForCausalLM"]})).ropes[0]
    config = transformers.LlamaConfig(**settings)
    for length in (8, 64, 65, 500):
        right, factor = ROPE_INIT_FUNCTIONS["dynamic"](config, seq_len=length)
        np.testing.assert_allclose(rope.of_length(length), right, rtol=1e-6)
        assert rope.factor == factor
    assert rope.of_length(64) == rope.frequencies != rope.of_length(65)


def test_gemma3_for_text_may_have_its_settings_within():
    settings = SIZES | OLD["Gemma 3"]
    within = {"architectures": settings["architectures"], "text_config": settings}
    assert decoder_of(Files(within | {"vision_config": {"depth": 2}})) == decoder_of(
        Files(settings)
    )


def gguf(architecture, further=(), **changed):
    sizes = {
        "embedding_length": 48,
        "block_count": 7,
        "feed_forward_length": 100,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 6,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "context_length": 4096,
    }
    values = sizes | {name.replace("__", "."): value for name, value in changed.items()}
    metadata = {f"{architecture}.{name}": value for name, value in values.items()}
    return Files(metadata | {"general.architecture": architecture}, further)


def test_windows_of_gguf_come_in_periods():
    every = gguf("gemma2", attention__sliding_window=9)
    assert decoder_of(every).windows == (9, 0, 9, 0, 9, 0, 9)
    sixth = gguf("gemma3", attention__sliding_window=9)
    assert decoder_of(sixth).windows == (9, 9, 9, 9, 9, 0, 9)
    third = gguf("gemma3", attention__sliding_window=9, attention__sliding_window_pattern=3)
    assert decoder_of(third).windows == (9, 9, 0, 9, 9, 0, 9)
    assert decoder_of(gguf("gemma3")).windows == (0,) * 7
    listed = {"attention__sliding_window_pattern": np.array([True, False, False] * 2 + [True])}
    olmo3 = gguf("olmo2", attention__sliding_window=9, **listed)
    assert decoder_of(olmo3).windows == (9, 0, 0, 9, 0, 0, 9)
    assert decoder_of(gguf("olmo2", attention__sliding_window=9)).windows == (9, 9, 9, 0, 9, 9, 9)
    assert decoder_of(gguf("olmo2")).windows == (0,) * 7
    assert decoder_of(gguf("phi3", attention__sliding_window=0)).windows == (0,) * 7


@pytest.mark.parametrize(("architecture", "layers"), [("gemma2", 46), ("gemma3", 62)])
def test_the_largest_gemma_has_a_scale_of_its_own(architecture, layers):
    assert decoder_of(gguf(architecture)).scale == 6**-0.5
    assert decoder_of(gguf(architecture, block_count=layers)).scale == 12**-0.5


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            gguf("mamba"),
            "unknown architecture 'mamba'; the known ones are deepseek2, gemma, gemma2, gemma3",
        ),
        (gguf(["llama"]), "unknown architecture ['llama']"),
        (gguf("qwen3", expert_count=8), "expert_count is 8; of mixtures of experts only Mixtral"),
        (gguf("llama", expert_count=8), "expert_used_count is missing"),
        (
            gguf("llama", expert_count=8, expert_used_count=9),
            "expert_used_count must be at most the 8 experts, got 9",
        ),
        (gguf("llama", rope__scaling__type="ntk"), "rope.scaling.type 'ntk' is not supported"),
        (gguf("llama", rope__scaling__type="yarn"), "rope.scaling.factor is missing"),
        (
            gguf("llama", rope__scaling__type="yarn", rope__scaling__yarn_ext_factor=0.5),
            "yarn_ext_factor is 0.5; only 1.0 is supported",
        ),
        (
            gguf("llama", rope__scaling__type="yarn", rope__scaling__factor=2.0, rope__freq_base=1),
            "the base of a rotation by YaRN must not be 1",
        ),
        (gguf("granite"), "logit_scale is missing"),
        (gguf("granite", rope__scaling__finetuned=False), "rope.scaling.finetuned is False"),
        (
            gguf("olmo2", attention__sliding_window_pattern=[True, False] * 3),
            "must be true or false for each of 7 layers, got [True, False, True",
        ),
        (gguf("llama", rope__scale_linear=0.5), "rope.scale_linear is 0.5"),
        (gguf("llama", attention__head_count=[4, 4]), "must be a positive integer, got [4, 4]"),
        (gguf("llama", block_count=10**9), "block_count is 1000000000, but there are only 102"),
        (gguf("gemma3", attention__sliding_window=-2), "must be a positive integer, got -2"),
        # Arrays in a file are NumPy's, or lists of texts, of any length.
        (gguf("gemma3", attention__sliding_window=np.zeros(0)), "a positive integer, got []"),
        (gguf("gemma2", attn_logit_softcapping=np.ones(2)), "positive number, got [1.0, 1.0]"),
        (gguf("phi3", expert_count=np.arange(9)), "expert_count is [0, 1, 2, 3, 4, 5, 6, 7, 8]"),
        (gguf("llama", rope__scaling__type=["yarn"] * 99), "rope.scaling.type ['yarn', 'yarn', "),
        (
            gguf("llama", rope__dimension_count=2**31 - 1),
            "dimension_count: 2147483647 of the 6",
        ),
        (
            gguf("llama", rope__dimension_count=8),
            "rope.dimension_count: 8 of the 6 elements",
        ),
        (gguf("gemma3", rope__dimension_count=8), "rope.dimension_count: 8 of the 6 elements of a"),
        (gguf("phi3", rope__dimension_count=5), "pairs; expected an even number up to 6"),
        (gguf("qwen2", attention__key_length=7), "rope.dimension_count: 7 of the 7 elements of a"),
        (
            gguf("llama", attention__head_count_kv=3),
            "head_count_kv must divide the 4 heads",
        ),
        (
            gguf("gemma3", attention__sliding_window_pattern=0),
            "window_pattern must be a positive",
        ),
        (
            gguf("phi3", ["rope_factors_long.weight"], rope__scaling__original_context_length=96),
            "tensor 'rope_factors_short.weight' is missing",
        ),
        (gguf("phi3", rope__scaling__type="longrope"), "'rope_factors_short.weight' is missing"),
    ],
)
def test_what_is_not_supported_is_named(files, words):
    with pytest.raises(FileFormatError) as caught:
        decoder_of(files)
    assert words in str(caught.value)

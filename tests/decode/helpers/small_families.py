"""Small models of random weights, of every family, whose greedy tokens are apart from others."""

import torch
import transformers

from gguf_models import write_gguf
from greedy_models import SMALL_MODEL

YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}
PAD = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
# The class of a model, and its settings; seeds are those whose best logits are apart.
MODELS = {
    "Mistral": ("Mistral", 0, {"sliding_window": 7, "head_dim": 16}),
    "Mistral without a window": ("Mistral", 0, {"sliding_window": None}),
    "Qwen 2": ("Qwen2", 0, {}),
    "Qwen 2 with windows": (
        "Qwen2",
        0,
        {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    ),
    "Qwen 3": ("Qwen3", 0, {"head_dim": 20, "tie_word_embeddings": False}),
    "Qwen 3 with YaRN": ("Qwen3", 0, {"head_dim": 20, "rope_parameters": YARN}),
    "Phi 3": ("Phi3", 0, {**PAD, "sliding_window": 11, "partial_rotary_factor": 0.5}),
    "Gemma 1": ("Gemma", 0, {"head_dim": 20}),
    "Gemma 2": (
        "Gemma2",
        0,
        {
            "num_hidden_layers": 3,
            "head_dim": 20,
            "query_pre_attn_scalar": 20,
            "sliding_window": 9,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "Gemma 3": (
        "Gemma3Text",
        0,
        {
            "num_hidden_layers": 7,
            "head_dim": 12,
            "query_pre_attn_scalar": 12,
            "sliding_window": 9,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 5e4, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
            },
        },
    ),
    "SmolLM 3": ("SmolLM3", 0, {**PAD, "num_hidden_layers": 5}),
    "Granite 3": (
        "Granite",
        0,
        {
            "embedding_multiplier": 3.5,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.31,
            "logits_scaling": 2.5,
        },
    ),
    "OLMo 2": ("Olmo2", 0, PAD),
    "OLMo 3": (
        "Olmo3",
        0,
        {
            **PAD,
            "num_hidden_layers": 5,
            "sliding_window": 7,
            "rope_parameters": {
                "full_attention": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
            },
        },
    ),
    "Ministral 3": (
        "Ministral3",
        0,
        {
            **PAD,
            "head_dim": 20,
            "rope_parameters": {
                **YARN,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.4,
                "original_max_position_embeddings": 16,
            },
        },
    ),
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 28}
MODELS |= {
    "Mixtral": ("Mixtral", 1, {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "Mixtral with a window": (
        "Mixtral",
        0,
        {"num_local_experts": 4, "num_experts_per_tok": 3, "sliding_window": 7},
    ),
    "Qwen 2 MoE": (
        "Qwen2Moe",
        0,
        {**EXPERTS, "num_experts": 5, "shared_expert_intermediate_size": 44},
    ),
    "Qwen 2 MoE with windows": (
        "Qwen2Moe",
        0,
        {
            **EXPERTS,
            "num_experts": 5,
            "shared_expert_intermediate_size": 44,
            "num_hidden_layers": 3,
            "norm_topk_prob": True,
            "mlp_only_layers": [1],
            "use_sliding_window": True,
            "sliding_window": 9,
            "max_window_layers": 2,
        },
    ),
    "Qwen 3 MoE": (
        "Qwen3Moe",
        0,
        {**EXPERTS, "num_experts": 7, "norm_topk_prob": True, "head_dim": 20},
    ),
    "Qwen 3 MoE in some layers": (
        "Qwen3Moe",
        0,
        {
            **EXPERTS,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "head_dim": 12,
            "num_hidden_layers": 3,
            "decoder_sparse_step": 2,
            "use_sliding_window": True,
            "sliding_window": 7,
        },
    ),
}
MODELS |= {
    "OLMoE": (
        "Olmoe",
        0,
        {**PAD, "intermediate_size": 28, "num_experts": 6, "num_experts_per_tok": 3},
    ),
    "GLM 4 MoE": (
        "Glm4Moe",
        0,
        {
            **EXPERTS,
            "n_routed_experts": 8,
            "n_group": 4,
            "topk_group": 2,
            "n_shared_experts": 2,
            "routed_scaling_factor": 1.5,
            "num_hidden_layers": 3,
            "head_dim": 20,
            "attention_bias": True,
            "use_qk_norm": True,
        },
    ),
    "gpt-oss": (
        "GptOss",
        1,
        {
            "num_hidden_layers": 3,
            "intermediate_size": 28,
            "num_local_experts": 6,
            "num_experts_per_tok": 3,
            "head_dim": 20,
            "sliding_window": 9,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 150000.0,
                "factor": 4.0,
                "beta_fast": 8.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 32,
            },
        },
    ),
}
CONVOLUTIONS = {**PAD, "norm_eps": 1e-3, "conv_L_cache": 4, "num_hidden_layers": 4}
MODELS |= {
    "LFM2": (
        "Lfm2",
        0,
        {
            **CONVOLUTIONS,
            "conv_L_cache": 3,
            "full_attn_idxs": [1, 3],
            "block_multiple_of": 7,
            "block_ffn_dim_multiplier": 1.1,
        },
    ),
    "LFM2 MoE": (
        "Lfm2Moe",
        0,
        {
            **CONVOLUTIONS,
            **EXPERTS,
            "num_experts": 6,
            "num_dense_layers": 1,
            "layer_types": ["full_attention", "conv", "conv", "full_attention"],
        },
    ),
    "LFM2 MoE with biases": (
        "Lfm2Moe",
        0,
        {
            **CONVOLUTIONS,
            **EXPERTS,
            "num_experts": 5,
            "num_dense_layers": 2,
            "layer_types": ["conv", "conv", "full_attention", "conv"],
            "conv_bias": True,
            "routed_scaling_factor": 1.7,
            "tie_word_embeddings": False,
        },
    ),
}
MODELS |= {
    "Qwen 3.5": (
        "Qwen3_5Text",
        0,
        {
            "num_hidden_layers": 4,
            "layer_types": [
                "linear_attention",
                "full_attention",
                "linear_attention",
                "full_attention",
            ],
            "head_dim": 16,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 6,
            "linear_conv_kernel_dim": 4,
        },
    ),
    "Qwen 3.5 MoE": (
        "Qwen3_5MoeText",
        0,
        {
            **EXPERTS,
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "num_experts": 6,
            "shared_expert_intermediate_size": 44,
            "head_dim": 16,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
        },
    ),
    "Qwen 3 Next": (
        "Qwen3Next",
        0,
        {
            **EXPERTS,
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "num_experts": 6,
            "shared_expert_intermediate_size": 44,
            "head_dim": 16,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
        },
    ),
    "Qwen 3.5 of odd sizes": (
        "Qwen3_5Text",
        0,
        {
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "linear_attention", "full_attention"],
            "head_dim": 24,
            "tie_word_embeddings": False,
            "linear_key_head_dim": 7,
            "linear_value_head_dim": 13,
            "linear_num_key_heads": 3,
            "linear_num_value_heads": 3,
            "linear_conv_kernel_dim": 3,
        },
    ),
}
WINDOWED_LAST = ["sliding_attention", "full_attention"]
STATE_SPACE = {
    **PAD,
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
    "shared_intermediate_size": 60,
    "intermediate_size": 28,
    "num_local_experts": 0,
    "mamba_n_heads": 8,
    "mamba_d_state": 10,
    "embedding_multiplier": 3.5,
    "residual_multiplier": 0.22,
    "attention_multiplier": 0.31,
    "logits_scaling": 2.5,
}
MODELS |= {
    "Granite 4": ("GraniteMoeHybrid", 0, {**STATE_SPACE, "tie_word_embeddings": False}),
    "Granite 4 MoE": (
        "GraniteMoeHybrid",
        0,
        {
            **STATE_SPACE,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "mamba_n_groups": 2,
            "position_embedding_type": "rope",
            "mamba_d_conv": 3,
            "mamba_conv_bias": False,
        },
    ),
}
MODELS |= {
    "Gemma 4": (
        "Gemma4Text",
        2,
        {
            **PAD,
            "num_hidden_layers": 6,
            "layer_types": [*["sliding_attention", "full_attention"] * 2, *WINDOWED_LAST],
            "head_dim": 12,
            "global_head_dim": 20,
            "sliding_window": 7,
            "final_logit_softcapping": 3.0,
            "vocab_size_per_layer_input": 331,
            "hidden_size_per_layer_input": 10,
            "num_kv_shared_layers": 3,
            "use_double_wide_mlp": True,
            "initializer_range": 0.1,
        },
    ),
    "Gemma 4 MoE": (
        "Gemma4Text",
        0,
        {
            **PAD,
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", *WINDOWED_LAST],
            "head_dim": 12,
            "global_head_dim": 20,
            "num_global_key_value_heads": 1,
            "sliding_window": 9,
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "enable_moe_block": True,
            "num_experts": 6,
            "top_k_experts": 3,
            "moe_intermediate_size": 28,
            "initializer_range": 0.1,
        },
    ),
}
OF_GEMMA4 = ("layernorm_1.weight", "layernorm_2.weight", "router.scale", "per_expert_scale")
LATENT = {
    **EXPERTS,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "q_lora_rank": 20,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
MODELS |= {
    "DeepSeek V2": (
        "DeepseekV2",
        0,
        {
            **LATENT,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 1.5,
            "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.7},
        },
    ),
    "DeepSeek V2 Lite": ("DeepseekV2", 0, {**LATENT, "q_lora_rank": None}),
    "DeepSeek V3": (
        "DeepseekV3",
        0,
        {
            **LATENT,
            "n_group": 4,
            "topk_group": 2,
            "num_experts_per_tok": 3,
            "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
    "DeepSeek V3 with biases": (
        "DeepseekV3",
        0,
        {
            **LATENT,
            "q_lora_rank": None,
            "n_group": 2,
            "topk_group": 1,
            "norm_topk_prob": False,
            "attention_bias": True,
            "rope_interleave": False,
            "tie_word_embeddings": False,
            "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5},
        },
    ),
    "GLM 4.7 Flash": ("Glm4MoeLite", 0, {**LATENT, "num_hidden_layers": 2, "v_head_dim": 16}),
}
# Their GGUF files do not have the window or the factor of experts, or cannot say which layers have
# experts.
ONLY_SAFETENSORS = (
    "Mistral",
    "Qwen 2 with windows",
    "Mixtral with a window",
    "Qwen 2 MoE with windows",
    "Qwen 3 MoE in some layers",
    "LFM2 MoE with biases",
    "Qwen 3.5 of odd sizes",
    "DeepSeek V3 with biases",
)


def small_model(name, **changed):
    family, seed, settings = MODELS[name]
    settings = {
        **SMALL_MODEL,
        "rms_norm_eps": 1e-3,
        "initializer_range": 0.3,  # so that the model says something
        **settings,
        **changed,
    }
    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(**settings)
    # Other kernels of attention than the eager one have no soft cap.
    model_class = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")
    model = model_class._from_config(config, attn_implementation="eager").eval()
    for key, parameter in model.named_parameters():
        # Which begin as all ones or zeros, or as numbers in a row.
        if key.endswith(("norm.weight", "bias", "sinks", "mamba.D", "A_log", *OF_GEMMA4)):
            parameter.data.add_(torch.randn_like(parameter), alpha=0.2)
    for key, buffer in model.named_buffers():
        if key.endswith(("bias", "layer_scalar")):
            buffer.add_(torch.randn_like(buffer), alpha=0.2)
    return model


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LLAMAS = {
    "grouped heads": {"num_attention_heads": 6, "num_key_value_heads": 3},
    "one key/value head": {"num_attention_heads": 5, "num_key_value_heads": 1, "hidden_size": 60},
    "as many key/value heads": {"num_attention_heads": 3, "num_key_value_heads": 3},
    "head size of its own": {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 20},
    "own head": {"tie_word_embeddings": False},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "Llama 3's rotation": {"rope_parameters": LLAMA3},
    "rotation scaled": {
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}
    },
    "weights in float16": {"dtype": torch.float16},
    "weights in bfloat16": {"dtype": torch.bfloat16, "tie_word_embeddings": False},
    "YaRN": {
        "rope_parameters": {
            **YARN,
            "truncate": False,
            "beta_fast": 8.0,
            "mscale": 2.0,
            "mscale_all_dim": 0.5,
        },
    },
    "a dynamic rotation": {
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.5}
    },
}
# A model that each of nine ranks has one head of, as of SmolLM2-135M.
SMOLLM2 = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
}
SHARDED = {"SmolLM 2": SMOLLM2} | {
    name: given for name, given in LLAMAS.items() if "dtype" not in given
}
FAMILIES = [*MODELS, *SHARDED]
PROMPT = [3, 200, 17, 5, 330, 64, 128]


def model_of(family):
    """Return a small model of one of `FAMILIES`."""
    if family in MODELS:
        return small_model(family)
    torch.manual_seed(1)
    spread = 0.08 if family == "SmolLM 2" else 0.3
    settings = SMALL_MODEL | SHARDED[family]
    config = transformers.LlamaConfig(initializer_range=spread, **settings)
    return transformers.LlamaForCausalLM(config).eval()


def save(model, family, folder):
    """Write a model as a GGUF file, or as a folder where there is no such file; return its path."""
    if family in ONLY_SAFETENSORS or family in LLAMAS:
        model.save_pretrained(folder)
        return folder
    path = folder / "model.gguf"
    write_gguf(model, path)
    return path

"""A small model of random weights for each family of the engine."""

import os

import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

VOCABULARY = 331
# Sizes of all small models.
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-3,
    "initializer_range": 0.3,  # so that the model says something
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}
STATE_SPACE = {
    "layer_types": ["linear_attention", "full_attention"],
    "shared_intermediate_size": 60,
    "num_local_experts": 0,
    "mamba_n_heads": 8,
    "mamba_d_state": 10,
}
# Layers of Gemma 4, with heads of two sizes.
LAYERS = {
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "head_dim": 12,
    "global_head_dim": 20,
    "sliding_window": 9,
}
LATENT = {
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 28,
    "first_k_dense_replace": 1,
    "q_lora_rank": 20,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
}
# The class of a model, and its settings.
FAMILIES = {
    "Llama": ("Llama", {}),
    "Llama 3": (
        "Llama",
        {
            "attention_bias": True,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 1e4,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
    "Mistral": ("Mistral", {"sliding_window": 7, "head_dim": 20}),
    "Qwen 2": ("Qwen2", {}),
    "Qwen 3": ("Qwen3", {"head_dim": 20}),
    "Phi 3": ("Phi3", {"sliding_window": 11, "partial_rotary_factor": 0.5}),
    "Gemma 1": ("Gemma", {"head_dim": 20}),
    "Gemma 2": (
        "Gemma2",
        {
            "head_dim": 20,
            "query_pre_attn_scalar": 20,
            "sliding_window": 9,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "Gemma 3": (
        "Gemma3Text",
        {
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "head_dim": 12,
            "query_pre_attn_scalar": 12,
            "sliding_window": 9,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 5e4, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
            },
        },
    ),
    "Gemma 4": (
        "Gemma4Text",
        {
            **LAYERS,
            "vocab_size_per_layer_input": VOCABULARY,
            "hidden_size_per_layer_input": 12,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
            "final_logit_softcapping": 5.0,
            "initializer_range": 0.1,
        },
    ),
    "Gemma 4 MoE": (
        "Gemma4Text",
        {
            **LAYERS,
            "num_global_key_value_heads": 1,
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "enable_moe_block": True,
            "num_experts": 4,
            "top_k_experts": 2,
            "moe_intermediate_size": 28,
            "initializer_range": 0.1,
        },
    ),
    "Mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "Qwen 2 MoE": (
        "Qwen2Moe",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 28,
            "shared_expert_intermediate_size": 20,
        },
    ),
    "Qwen 3 MoE": (
        "Qwen3Moe",
        {
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 28,
            "norm_topk_prob": True,
            "head_dim": 20,
        },
    ),
    "OLMoE": ("Olmoe", {"num_experts": 4, "num_experts_per_tok": 2}),
    "GLM 4 MoE": (
        "Glm4Moe",
        {
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 28,
            "head_dim": 20,
            "use_qk_norm": True,
        },
    ),
    "DeepSeek V2 MoE": ("DeepseekV2", LATENT),
    "DeepSeek V3 MoE": ("DeepseekV3", {**LATENT, "n_group": 2, "topk_group": 1}),
    "DeepSeek V3 without experts": ("DeepseekV3", {**LATENT, "first_k_dense_replace": 2}),
    "GLM 4.7 Flash MoE": ("Glm4MoeLite", {**LATENT, "q_lora_rank": None}),
    "gpt-oss": (
        "GptOss",
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "head_dim": 20,
            "sliding_window": 7,
            "rope_parameters": YARN | {"truncate": False},
        },
    ),
    "SmolLM 3": ("SmolLM3", {"no_rope_layers": [1, 0]}),
    "Granite 3": (
        "Granite",
        {
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.31,
            "logits_scaling": 2.5,
        },
    ),
    "Granite 4": ("GraniteMoeHybrid", STATE_SPACE),
    "Granite 4 MoE": ("GraniteMoeHybrid", {**STATE_SPACE, "num_local_experts": 4}),
    "OLMo 2": ("Olmo2", {}),
    "OLMo 3": (
        "Olmo3",
        {
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 9,
            "rope_parameters": {
                "full_attention": YARN,
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
            },
        },
    ),
    "Ministral 3": (
        "Ministral3",
        {"head_dim": 20, "rope_parameters": {**YARN, "llama_4_scaling_beta": 0.4}},
    ),
}


def small_model(name="Llama", *, tied=True, dtype=torch.float32, seed=0, **changed):
    """Return a model of a family whose norms and biases are not all ones and zeros."""
    family, settings = FAMILIES[name]
    torch.manual_seed(seed)
    settings = {**SMALL, **settings, "tie_word_embeddings": tied, **changed}
    config = getattr(transformers, f"{family}Config")(**settings)
    model_class = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")
    # Other kernels of attention than the eager one have no soft cap.
    model = model_class._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith(("norm.weight", "bias")):
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model.to(dtype)


def prompt(length=9):
    """Return a prompt with its mask, as arguments of ``generate``."""
    tokens = torch.randint(0, VOCABULARY, (1, length), generator=torch.Generator().manual_seed(7))
    return {"inputs": tokens, "attention_mask": torch.ones_like(tokens)}


def greedy(model, count, **given):
    """Return what a model, or a decoder, continues a prompt with."""
    given = given or prompt()
    return model.generate(**given, max_new_tokens=count, do_sample=False, pad_token_id=0)

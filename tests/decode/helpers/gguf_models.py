"""Writes models of transformers as GGUF files, as llama.cpp's converter does.

It takes what differs between families from gguf's own table of names. The keys, the rows that are
permuted and the weights that are stored plus one follow llama.cpp's conversion of each family.
"""

import math

import gguf
import numpy as np

# By the model_type in config.json.
ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "ministral3": "mistral3",
    "smollm3": "smollm3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "phi3": "phi3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "gemma4_text": "gemma4",
    "mixtral": "llama",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "olmoe": "olmoe",
    "glm4_moe": "glm4moe",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "glm4_moe_lite": "deepseek2",
    "gpt_oss": "gpt-oss",
    "granite": "granite",
    "granitemoehybrid": "granitehybrid",
    "olmo2": "olmo2",
    "olmo3": "olmo2",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2moe",
    "qwen3_next": "qwen3next",
    "qwen3_5_text": "qwen35",
    "qwen3_5_moe_text": "qwen35moe",
}
# What a layer that guesses tokens has beside others.
DRAFT = {
    "eh_proj": "eh_proj",
    "enorm": "enorm",
    "hnorm": "hnorm",
    "shared_head.norm": "shared_head_norm",
}
# Those whose rows of queries and keys llama.cpp's converter permutes.
INTERLEAVED = ("llama", "mistral3", "smollm3", "granite", "granitehybrid")

# Those whose norms have one added to their weights.
PLUS_ONE = ("gemma", "gemma2", "gemma3", "qwen35", "qwen35moe", "qwen3next")


def write_gguf(model, path, matrices=None, tied="model.embed_tokens.weight"):
    """Write the weights and the settings of a model.

    With ``kv_b_proj`` among the `matrices`, latent attention is as files had it before April 2025.
    `matrices` has the bytes and the format of those that are not stored as they are, and `tied` is
    under what name the file has the only matrix of a model that ties its head.
    """
    config, matrices = model.config, matrices or {}
    name = ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, name)
    # That of LFM2 is adjusted.
    adjusted = model.state_dict().get("model.layers.0.feed_forward.w1.weight")
    intermediate = config.intermediate_size if adjusted is None else len(adjusted)
    is_older = any("kv_b_proj" in key for key in matrices)
    _write_settings(writer, config, intermediate, is_older=is_older)
    architecture = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    ends = {"lm_head.weight", "model.embed_tokens.weight"} if config.tie_word_embeddings else {tied}
    for key, values, kind in _tensors(model, matrices):
        if key in ends - {tied}:
            continue
        stored = gguf.GGMLQuantizationType[kind.upper()]
        written = values
        if name in INTERLEAVED and "q_proj" in key:
            written = _permuted(values, config.num_attention_heads)
        elif name in INTERLEAVED and "k_proj" in key:
            written = _permuted(values, config.num_key_value_heads)
        elif name in PLUS_ONE and key.endswith("norm.weight"):
            written = values + np.float32("linear_attn" not in key)
        if "linear_attn" in key:
            written = _linear_attention(key, written, config)
        if "shared_expert_gate" in key and name != "qwen2moe":
            written = written.reshape(-1)  # as some files have a dimension of 1
        ends_of_names = (".weight", ".bias", ".scale")
        found = names.get_name(key.replace("dt_bias", "dt_proj.bias"), ends_of_names)
        layer, _, part = key.removeprefix("model.layers.").removesuffix(".weight").partition(".")
        if part in DRAFT:
            found = f"blk.{layer}.nextn.{DRAFT[part]}.weight"
        assert found is not None, key
        writer.add_tensor(found, written, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(model, matrices):
    """Yield the tensors of a model by their names, with formats; of experts, gate and up apart."""
    alternate = model.config.model_type == "gpt_oss"  # rows of gate and up, which are columns there
    for key, tensor in model.state_dict().items():
        values, kind = matrices.get(key, (tensor.float().numpy(), "f32"))
        if alternate and values.ndim == 3 and key not in matrices:
            values = values.swapaxes(1, 2)
        if model.config.model_type == "gemma4_text":
            yield _of_gemma4(key), values, kind
            continue
        if "experts.gate_up_proj" in key:
            halves = (values[:, ::2], values[:, 1::2]) if alternate else np.split(values, 2, axis=1)
            what = "bias" if key.endswith("bias") else "weight"
            start = key.partition("gate_up_proj")[0].replace("block_sparse_moe", "mlp")
            for part, half in zip(("gate", "up"), halves, strict=True):
                yield f"{start}{part}_proj.{what}", np.ascontiguousarray(half), kind
            continue
        if key.endswith("kv_b_proj.weight") and key not in matrices:
            yield from _of_latents(key, values, kind, model.config)
            continue
        if key.endswith("in_proj_qkvz.weight"):
            yield from _by_kind(key, values, kind, model.config)
            continue
        if "shared_mlp" in key or ".mamba." in key:
            yield from _of_granite4(key, values, kind, model.config)
            continue
        if key.endswith("conv.conv.weight"):
            values = values[:, 0]
        name = key.replace("down_proj_bias", "down_proj.bias")
        name = name.replace("expert_bias", "expert_bias.bias")
        name = name.replace("e_score_correction_bias", "e_score_correction.bias")
        name = name.replace("block_sparse_moe.router", "mlp.gate")
        name = name.replace("block_sparse_moe.experts", "mlp.experts")
        if name.endswith(("experts.down_proj", "sinks")):
            name += ".weight"
        yield name, np.ascontiguousarray(values), kind


def _write_settings(writer, config, intermediate, *, is_older):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    if further := getattr(config, "num_layers_of_draft", 0):
        writer.add_nextn_predict_layers(further)
    writer.add_head_count(config.num_attention_heads)
    if writer.arch == "gemma4":
        _write_gemma4(writer, config)
        return
    writer.add_feed_forward_length(intermediate)
    if writer.arch in ("lfm2", "lfm2moe", "granitehybrid"):
        of_all = config.num_key_value_heads
        writer.add_head_count_kv([of_all * (each[:4] == "full") for each in config.layer_types])
    else:
        is_latent = writer.arch == "deepseek2" and not is_older
        writer.add_head_count_kv(1 if is_latent else config.num_key_value_heads)
    if writer.arch in ("lfm2", "lfm2moe"):
        writer.add_shortconv_l_cache(config.conv_L_cache)
    if writer.arch == "lfm2moe":
        writer.add_leading_dense_block_count(config.num_dense_layers)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if hasattr(config, "num_experts_per_tok") and getattr(config, "num_local_experts", 1):
        count = "num_experts" if hasattr(config, "num_experts") else "num_local_experts"
        writer.add_expert_count(getattr(config, count))
        writer.add_expert_used_count(config.num_experts_per_tok)
    if hasattr(config, "moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if writer.arch == "glm4moe":
        part = config.rope_parameters["partial_rotary_factor"]
        writer.add_rope_dimension_count(int(part * config.head_dim))
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
    if writer.arch == "deepseek2":
        _write_latents(writer, config, is_older=is_older)
    if hasattr(config, "linear_num_value_heads"):
        inner = config.linear_num_value_heads * config.linear_value_head_dim
        writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
        writer.add_ssm_state_size(config.linear_key_head_dim)
        writer.add_ssm_group_count(config.linear_num_key_heads)
        writer.add_ssm_time_step_rank(config.linear_num_value_heads)
        writer.add_ssm_inner_size(inner)
        writer.add_full_attention_interval(config.layer_types.index("full_attention") + 1)
        writer.add_rope_dimension_count(int(0.25 * config.head_dim))
    if writer.arch == "granitehybrid":
        writer.add_ssm_conv_kernel(config.mamba_d_conv)
        writer.add_ssm_state_size(config.mamba_d_state)
        writer.add_ssm_group_count(config.mamba_n_groups)
        writer.add_ssm_time_step_rank(config.mamba_n_heads)
        writer.add_ssm_inner_size(config.mamba_expand * config.hidden_size)
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
        writer.add_rope_scaling_finetuned(config.position_embedding_type == "rope")
    if hasattr(config, "shared_expert_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    head_size = getattr(config, "head_dim", None)
    if head_size is not None and writer.arch != "deepseek2":
        writer.add_key_length(head_size)
        writer.add_value_length(head_size)
    rope = config.rope_parameters
    if "full_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        _write_yarn(writer, rope)
    if writer.arch == "phi3":
        _write_phi3(writer, config, rope)
    if writer.arch in ("gemma2", "gemma3", "gpt-oss") or config.model_type == "olmo3":
        writer.add_sliding_window(config.sliding_window)
    if config.model_type == "olmo3":
        writer.add_sliding_window_pattern([each[0] == "s" for each in config.layer_types])
    if writer.arch in ("granite", "granitehybrid"):
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, name, None) is not None:
            getattr(writer, f"add_{name}")(getattr(config, name))


def _write_latents(writer, config, *, is_older):
    """Write the sizes of latent attention, and of the experts of these models."""
    writer.add_kv_lora_rank(config.kv_lora_rank)
    if config.q_lora_rank is not None:
        writer.add_q_lora_rank(config.q_lora_rank)
    sizes = config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim
    if not is_older:
        writer.add_key_length_mla(sizes[0])
        writer.add_value_length_mla(sizes[1])
        sizes = config.kv_lora_rank + config.qk_rope_head_dim, config.kv_lora_rank
    writer.add_key_length(sizes[0])
    writer.add_value_length(sizes[1])
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    if config.norm_topk_prob:
        writer.add_expert_weights_norm(config.norm_topk_prob)
    dense = getattr(config, "first_k_dense_replace", None)
    if dense is None:
        dense = config.mlp_layer_types.count("dense")
    writer.add_leading_dense_block_count(dense)
    if config.n_group is not None:
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)


def _write_yarn(writer, rope):
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    written = {
        "attention_factor": writer.add_rope_scaling_yarn_attn_factor,
        "beta_fast": writer.add_rope_scaling_yarn_beta_fast,
        "beta_slow": writer.add_rope_scaling_yarn_beta_slow,
        "mscale_all_dim": writer.add_rope_scaling_yarn_log_mul,
        "llama_4_scaling_beta": writer.add_attn_temperature_scale,
    }
    for name, write in written.items():
        if rope.get(name) is not None:
            is_tenth = name == "mscale_all_dim" and writer.arch == "deepseek2"
            write(0.1 * rope[name] if is_tenth else rope[name])


def _write_phi3(writer, config, rope):
    head_size = config.hidden_size // config.num_attention_heads
    writer.add_rope_dimension_count(int(rope["partial_rotary_factor"] * head_size))
    writer.add_sliding_window(config.sliding_window or 0)
    original = rope.get("original_max_position_embeddings", config.original_max_position_embeddings)
    writer.add_rope_scaling_orig_ctx_len(original)
    if rope["rope_type"] != "longrope":
        return
    writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
    scale = config.max_position_embeddings / original
    factor = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
    writer.add_rope_scaling_attn_factors(factor)
    for which in ("long", "short"):
        factors = np.array(rope[f"{which}_factor"], dtype=np.float32)
        writer.add_tensor(f"rope_factors_{which}.weight", factors)


def _of_gemma4(key):
    """Return the name of a tensor of Gemma 4 with the ending that its GGUF name has."""
    if key.endswith(("layer_scalar", "gate_up_proj", "down_proj")):
        return f"{key}.weight"
    key = key.replace("router.scale", "router.proj.scale")
    return key.replace("router.per_expert_scale", "experts.down_proj.scale")


def _write_gemma4(writer, config):
    full = [each == "full_attention" for each in config.layer_types]
    layers = [config.per_layer_config[i] for i in range(len(full))]
    size, windowed = layers[-1].head_dim, config.per_layer_config["sliding_attention"].head_dim
    first = len(full) - config.num_kv_shared_layers
    wide = [i >= first and config.use_double_wide_mlp for i in range(len(full))]
    lengths = [config.intermediate_size * (1 + each) for each in wide]
    heads = [each.num_key_value_heads for each in layers]
    # As the converter does, one number where all layers have it.
    writer.add_feed_forward_length(lengths if any(wide) else lengths[0])
    writer.add_head_count_kv(heads if len(set(heads)) > 1 else heads[0])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern([not each for each in full])
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    for add in (writer.add_key_length, writer.add_value_length, writer.add_rope_dimension_count):
        add(size)
    writer.add_key_length_swa(windowed)
    writer.add_value_length_swa(windowed)
    writer.add_rope_dimension_count_swa(windowed)
    if config.final_logit_softcapping is not None:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if config.enable_moe_block:
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.top_k_experts)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    part = config.rope_parameters["full_attention"]["partial_rotary_factor"]
    turning = int(size * part / 2)
    factors = np.array([1.0] * turning + [1e30] * (size // 2 - turning), dtype=np.float32)
    writer.add_tensor("rope_freqs.weight", factors)


def _of_latents(key, values, kind, config):
    """Yield the matrices of keys, transposed, and of values, each of all heads."""
    size, start = config.qk_nope_head_dim, key.partition("kv_b_proj")[0]
    of_heads = values.reshape(config.num_attention_heads, -1, values.shape[1])
    keys = np.ascontiguousarray(of_heads[:, :size].swapaxes(1, 2))
    yield f"{start}k_b_proj.weight", keys, kind
    yield f"{start}v_b_proj.weight", np.ascontiguousarray(of_heads[:, size:]), kind


def _by_kind(key, values, kind, config):
    """Yield all queries, keys and values, and all gates, of rows that are by key heads."""
    size, heads = config.linear_key_head_dim, config.linear_num_key_heads
    of_head = values.reshape(heads, -1, values.shape[1])
    rest = np.split(of_head[:, 2 * size :], 2, axis=1)
    parts = [of_head[:, :size], of_head[:, size : 2 * size], *rest]
    q, k, v, z = (part.reshape(-1, values.shape[1]) for part in parts)
    start = key.partition("in_proj_qkvz")[0]
    yield f"{start}in_proj_qkv.weight", np.concatenate([q, k, v]), kind
    yield f"{start}in_proj_z.weight", np.ascontiguousarray(z), kind


def _of_granite4(key, values, kind, config):
    """Yield a tensor of Granite 4's state space models, or of the MLP of every token."""
    start, _, part = key.rpartition("shared_mlp.")
    if part.startswith("input_linear"):
        for what, half in zip(("gate", "up"), np.split(values, 2), strict=True):
            module = "shared_expert" if config.num_local_experts else "mlp"
            yield f"{start}mlp.{module}.{what}_proj.weight".replace("mlp.mlp", "mlp"), half, kind
        return
    if part.startswith("output_linear"):
        module = "shared_expert." if config.num_local_experts else ""
        yield f"{start}mlp.{module}down_proj.weight", values, kind
        return
    part = key.rpartition("mamba.")[2]
    if part == "conv1d.weight":
        values = values[:, 0]
    elif part == "A_log":
        values = -np.exp(values)
    elif part == "norm.weight":
        values = values.reshape(config.mamba_n_groups, -1)
    if part in ("A_log", "D"):
        values = values[:, np.newaxis]
    yield key, np.ascontiguousarray(values), kind


def _linear_attention(key, values, config):
    """Return a tensor of Qwen 3.5's linear attention as llama.cpp's converter writes it.

    Value heads with the same key head are neighbours in transformers, and apart in a GGUF file.
    """
    key_heads, heads = config.linear_num_key_heads, config.linear_num_value_heads
    order = np.arange(heads).reshape(key_heads, -1)
    order = order.reshape(-1) if config.model_type == "qwen3_next" else order.T.reshape(-1)
    first = 2 * key_heads * config.linear_key_head_dim
    part = key.rpartition("linear_attn.")[2]

    def reordered(of_heads):
        return of_heads.reshape(heads, -1, *of_heads.shape[1:])[order].reshape(of_heads.shape)

    if part == "conv1d.weight":
        values = values[:, 0]
    if part in ("in_proj_qkv.weight", "conv1d.weight"):
        values = np.concatenate([values[:first], reordered(values[first:])])
    elif part == "out_proj.weight":
        values = np.ascontiguousarray(reordered(values.T).T)
    elif part not in ("norm.weight", "in_proj_ba.weight"):
        values = reordered(values)
    if part == "A_log":
        values = -np.exp(values)
    return values


def _permuted(values, heads):
    """Return rows of queries or keys in the order of an interleaved rotation."""
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)

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
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "phi3": "phi3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
}


def write_gguf(model, path, matrices=None, tied="model.embed_tokens.weight"):
    """Write the weights and the settings of a model.

    `matrices` has the bytes and the format of those that are not stored as they are, and `tied` is
    under what name the file has the only matrix of a model that ties its head.
    """
    config, matrices = model.config, matrices or {}
    name = ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, name)
    _write_settings(writer, config)
    architecture = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    ends = {"lm_head.weight", "model.embed_tokens.weight"} if config.tie_word_embeddings else {tied}
    for key, tensor in model.state_dict().items():
        if key in ends - {tied}:
            continue
        values, kind = matrices.get(key, (tensor.float().numpy(), "f32"))
        stored = gguf.GGMLQuantizationType[kind.upper()]
        if name == "llama" and "q_proj" in key:
            values = _permuted(values, config.num_attention_heads)
        elif name == "llama" and "k_proj" in key:
            values = _permuted(values, config.num_key_value_heads)
        elif name.startswith("gemma") and key.endswith("norm.weight"):
            values = values + np.float32(1)
        writer.add_tensor(names.get_name(key, (".weight", ".bias")), values, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_settings(writer, config):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_size = getattr(config, "head_dim", None)
    if head_size is not None:
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
    if writer.arch == "phi3":
        _write_phi3(writer, config, rope)
    if writer.arch in ("gemma2", "gemma3"):
        writer.add_sliding_window(config.sliding_window)
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, name, None) is not None:
            getattr(writer, f"add_{name}")(getattr(config, name))


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


def _permuted(values, heads):
    """Return rows of queries or keys in the order of an interleaved rotation."""
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)

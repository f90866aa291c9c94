"""Models of every family with any setting or tensor changed: a program, or a FileFormatError."""

import copy
import functools
import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

from changes import change
from choices import Choices
from model_bytes import gguf, keys_of, replace, safetensors, tensor, tensors_of

from tensor_ops_decode import FileFormatError, PersistentKernel, Program
from tensor_ops_decode.models import FAMILIES, decoder_of
from tensor_ops_decode.weights.formats import FORMATS

__all__ = ["try_input"]

WORDS = [
    "rope_scaling", "rope_parameters", "text_config", "vision_config", "layer_types", "longrope",
    "linear", "llama3", "yarn", "default", "su", "rope_type", "type", "factor", "low_freq_factor",
    "high_freq_factor", "short_factor", "long_factor", "partial_rotary_factor", "expert_count",
    "original_max_position_embeddings", "attention_factor", "sliding_attention", "full_attention",
    "quantization_config", "use_sliding_window", "max_window_layers", "hidden_activation", "q8_0",
    "rope.scaling.type", "rope.scaling.factor", "rope.dimension_count", "rope.scale_linear",
    "rope.scaling.original_context_length", "attention.sliding_window_pattern", "eos_token_id",
    "rope.freq_base_swa", "attention.scale", "gelu_pytorch_tanh", "bos_token_id", "f16", "bf16",
    "dynamic", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate", "residual_scale",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_log_multiplier", "llama_4_scaling_beta",
    "attention.temperature_scale", "no_rope_layers", "no_rope_layer_interval", "logits_scaling",
    "residual_multiplier", "num_experts", "num_local_experts", "num_experts_per_tok", "qkv_bias",
    "norm_topk_prob", "mlp_only_layers", "decoder_sparse_step", "expert_used_count", "clip_qkv",
    "moe_intermediate_size", "num_nextn_predict_layers", "nextn_predict_layers", "swiglu_limit",
    "expert_group_count", "expert_group_used_count", "expert_weights_scale", "n_group",
    "quant_method", "weight_block_size", "block_structure", "config_groups", "checkpoint_format",
    "conv_L_cache", "conv_bias", "block_multiple_of", "block_ffn_dim_multiplier", "conv",
    "linear_attention", "ssm.inner_size", "linear_num_key_heads", "linear_conv_kernel_dim",
    "shortconv.l_cache", "mamba", "time_step_limit", "mamba_n_heads", "mamba_d_head", "auto",
    "rope.scaling.finetuned", "position_embedding_type", "layers_block_type", "per_layer_config",
    "attention.key_length_swa", "attention.shared_kv_layers", "num_kv_shared_layers",
    "proportional", "hidden_size_per_layer_input", "global_head_dim", "attention_k_eq_v",
    "use_double_wide_mlp", "q_lora_rank",
    "topk_method", "group_limited_greedy", "mlp_layer_types", "dense", "sparse", "rope_interleave",
    "attention.key_length_mla", "attention.q_lora_rank", "topk_group", "expert_weights_norm",
]  # fmt: skip
GGUF = {
    "embedding_length": 32,
    "block_count": 2,
    "feed_forward_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 8,
    "attention.sliding_window": 5,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 1e4,
    "rope.scaling.attn_factor": 1.25,
    "context_length": 64,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "logit_scale": 4.0,
    "shortconv.l_cache": 3,
    "full_attention_interval": 2,
    "ssm.conv_kernel": 4,
    "ssm.state_size": 8,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 4,
    "ssm.inner_size": 32,
}
GGUF_GEMMA4 = {
    "attention.key_length_swa": 8,
    "attention.value_length_swa": 8,
    "rope.dimension_count_swa": 8,
    "attention.shared_kv_layers": 1,
    "attention.sliding_window_pattern": [True, True],
    "embedding_length_per_layer_input": 4,
}
HUGGING_FACE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "sliding_window": 5,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64,
    "vocab_size": 40,
    "query_pre_attn_scalar": 8,
    "full_attn_idxs": [0],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "full_attention_interval": 2,
    "shared_intermediate_size": 20,
    "mamba_n_heads": 4,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
    "time_step_limit": [0.0, {"__float__": "Infinity"}],
    "position_embedding_type": "rope",
}
GEMMA4 = {
    "num_kv_shared_layers": 1,
    "layer_types": ["full_attention", "full_attention"],
    "per_layer_config": {"1": {"head_dim": 8}},
    "hidden_size_per_layer_input": 4,
    "enable_moe_block": True,
    "top_k_experts": 2,
}
GGUF_EXPERTS = {
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": 12,
    "expert_shared_feed_forward_length": 20,
    "expert_shared_count": 1,
    "expert_gating_func": 2,
    "expert_weights_norm": True,
    "leading_dense_block_count": 1,
}
HUGGING_FACE_EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 12,
    "shared_expert_intermediate_size": 20,
}
GGUF_LATENTS = {
    "attention.q_lora_rank": 12,
    "attention.kv_lora_rank": 12,
    "attention.key_length": 16,
    "attention.value_length": 12,
    "attention.key_length_mla": 8,
    "attention.value_length_mla": 6,
    "rope.dimension_count": 4,
}
HUGGING_FACE_LATENTS = {
    "num_key_value_heads": 4,
    "q_lora_rank": 12,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
FACTORS = {
    "rope_freqs.weight": {"type": "f32", "shape": [4]},
    "rope_factors_long.weight": {"type": "f32", "shape": [4]},
    "rope_factors_short.weight": {"type": "f32", "shape": [4]},
}
QUANTIZATIONS = (
    {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
    {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {
            "group_0": {
                "weights": {
                    "num_bits": 8,
                    "type": "float",
                    "symmetric": True,
                    "strategy": "channel",
                }
            }
        },
    },
    {"quant_method": "gptq", "bits": 4, "group_size": 64, "checkpoint_format": "gptq"},
    {"quant_method": "awq", "bits": 4, "zero_point": True, "version": "gemm"},
)


class OnlyEmbedding:
    """Files that tell the names of a family's tensors."""

    path = config = "files"
    names = ("token_embd.weight", "model.embed_tokens.weight")

    def __init__(self, metadata):
        self.metadata = metadata

    def header(self, name):
        return SimpleNamespace(shape=(HUGGING_FACE["vocab_size"], HUGGING_FACE["hidden_size"]))


def _models():
    """Return the settings and the tensors of a model of each family, in both kinds of files."""
    for family in FAMILIES:
        keys = GGUF | (GGUF_EXPERTS if family.may_have_experts else {})
        keys |= GGUF_GEMMA4 if family.gguf == "gemma4" else {}
        has_latents = family.gguf == "deepseek2"
        keys |= GGUF_LATENTS if has_latents else {}
        settings = {f"{family.gguf}.{name}": value for name, value in keys.items()}
        yield _model({"general.architecture": family.gguf, **settings})
        activation = "silu" if "Gemma" not in family.name else "gelu_pytorch_tanh"
        own = {**HUGGING_FACE, "hidden_act": activation, "hidden_activation": activation}
        own |= HUGGING_FACE_EXPERTS if family.may_have_experts else {}
        own |= GEMMA4 if family.gguf == "gemma4" else {}
        own |= HUGGING_FACE_LATENTS if has_latents else {}
        own = {family.within: own} if family.within else own
        yield _model({"architectures": [family.hugging_face], **own})
    phi3 = {f"phi3.{name}": value for name, value in GGUF.items()}
    phi3 |= {"phi3.rope.scaling.original_context_length": 8, "general.architecture": "phi3"}
    model = _model(phi3)
    model["tensors"] |= FACTORS
    yield model
    yarn = {"type": "yarn", "factor": 4.0, "original_context_length": 16, "yarn_beta_fast": 8.0}
    mistral3 = GGUF | {f"rope.scaling.{name}": value for name, value in yarn.items()}
    mistral3 |= {"attention.temperature_scale": 0.1}
    settings = {f"mistral3.{name}": value for name, value in mistral3.items()}
    yield _model({"general.architecture": "mistral3", **settings})
    for quantization in QUANTIZATIONS:
        sizes = {"hidden_size": 128, "intermediate_size": 64, "head_dim": 32}
        model = _model({"architectures": ["LlamaForCausalLM"], **HUGGING_FACE, **sizes})
        model["settings"]["quantization_config"] = quantization
        model["tensors"] = _quantized(model["tensors"], quantization["quant_method"])
        yield model


def _quantized(tensors, method):
    """Return tensors with each matrix of a layer in the parts that a method gives it."""
    made = {}
    for name, info in tensors.items():
        if ".layers." not in name or len(info["shape"]) < 2:
            made[name] = info
            continue
        rows, columns = info["shape"]
        module = name.removesuffix(".weight")
        if method in ("gptq", "awq"):
            words = (columns // 8, rows) if method == "gptq" else (columns, rows // 8)
            made[f"{module}.qweight"] = {"type": "I32", "shape": [*words]}
            made[f"{module}.qzeros"] = {"type": "I32", "shape": [columns // 64, rows // 8]}
            made[f"{module}.scales"] = {"type": "f16", "shape": [columns // 64, rows]}
        else:
            made[name] = {"type": "F8_E4M3", "shape": [rows, columns]}
            ending, scales = ("_scale_inv", [1, 1]) if method == "fp8" else ("_scale", [rows, 1])
            made[f"{name}{ending}"] = {"type": "f32", "shape": scales}
    return made


def _model(metadata):
    decoder = decoder_of(OnlyEmbedding(metadata))
    hidden, inner, size = decoder.hidden, decoder.intermediate, decoder.head_size
    q, kv = decoder.heads * size, decoder.kv_heads * size
    vocabulary = decoder.vocabulary
    shapes = {
        "embedding": [vocabulary, hidden], "head": [vocabulary, hidden], "norm": [hidden],
        "attention_norm": [hidden], "attention_post_norm": [hidden],
        "mlp_norm": [hidden], "mlp_post_norm": [hidden],
        "q_norm": [q if decoder.norms_rows else size],
        "k_norm": [kv if decoder.norms_rows else size],
        "q": [q, hidden], "k": [kv, hidden], "v": [kv, hidden], "qkv": [q + 2 * kv, hidden],
        "o": [hidden, q], "gate": [inner, hidden], "up": [inner, hidden],
        "gate_up": [2 * inner, hidden], "down": [hidden, inner],
        "conv_in": [3 * hidden, hidden], "conv_out": [hidden, hidden],
        "conv": [hidden, max(decoder.kept_rows, default=0) + 1],
    }  # fmt: skip
    if decoder.delta is not None:
        shapes |= _of_linear_attention(decoder)
    if decoder.state_space is not None:
        shapes |= _of_state_space(decoder)
    shapes |= _of_gemma4(decoder)
    if decoder.gates_attention:
        shapes["q"] = [2 * q, hidden]
    names = {role: name for role, name in decoder.names.items() if not role.startswith("draft")}
    if decoder.latent is not None:
        shapes |= _of_latents(decoder)
        for role in ("q", "k", "v", *(["kv_b"] if "k_b" in names else [])):
            del names[role]
    layer = names.pop("layer")
    joined = [("qkv", "q k v"), ("gate_up", "gate up"), ("delta_qkvz", "delta_qkv delta_gate")]
    for role, parts in (*joined, ("delta_ba", "delta_beta delta_rate")):
        for part in parts.split() if role in names else ():
            del names[part]
    if decoder.is_tied:
        del names["head"]
    of_experts = {role: name for role, name in names.items() if role in EXPERT_ROLES}
    tensors = {}
    for role, name in names.items():
        if role in of_experts:
            continue
        everywhere = role in EVERYWHERE
        for index, prefix in [(0, "")] if everywhere else enumerate(map(layer.format, range(2))):
            has_mlp = not _has_experts(decoder, index) or "expert_norm" in names
            if role in ("gate", "up", "down", "gate_up") and not has_mlp:
                continue
            if role.startswith("per_layer_") and not decoder.per_layer_inputs:
                continue
            has_conv = not everywhere and any(decoder.kept_rows[index : index + 1])
            has_delta = not everywhere and decoder.delta is not None and decoder.delta.layers[index]
            space = decoder.state_space
            has_ssm = not everywhere and space is not None and space.layers[index]
            has_attention = not has_conv and not has_delta and not has_ssm
            if (role in ATTENTION and not has_attention) or (role in CONVOLUTION and not has_conv):
                continue
            if role in ("delta_decay", "delta_bias"):
                if has_delta:
                    shape = [decoder.delta.heads]
                    tensors[f"{prefix}{name}"] = {"type": "f32", "shape": shape}
                continue
            if role in ("ssm_rate", "ssm_step_bias", "ssm_skip"):
                if has_ssm:
                    tensors[f"{prefix}{name}"] = {"type": "f32", "shape": [space.heads]}
                continue
            if role.startswith("delta_") and not has_delta:
                continue
            if role.startswith("ssm_") and not has_ssm:
                continue
            if role in WHOLE_NAMES:
                tensors[f"{prefix}{name}"] = {"type": "f32", "shape": shapes[role]}
                continue
            tensors[f"{prefix}{name}.weight"] = {"type": "f32", "shape": shapes[role]}
            if role in decoder.biases or (role == "ssm_conv" and space.has_bias):
                tensors[f"{prefix}{name}.bias"] = {"type": "f32", "shape": shapes[role][:1]}
    for index in filter(functools.partial(_has_experts, decoder), range(2)):
        for name, shape in _tensors_of_experts(decoder, of_experts):
            tensors[f"{layer.format(index)}{name}"] = {"type": "f32", "shape": shape}
    return {"settings": metadata, "tensors": tensors}


EVERYWHERE = (
    "embedding", "norm", "head", "per_layer_embedding", "per_layer_projection", "per_layer_norm",
)  # fmt: skip
WHOLE_NAMES = ("sinks", "layer_scale", "router_norm", "expert_scale")
ATTENTION = ("q", "k", "v", "o", "q_norm", "k_norm")
CONVOLUTION = ("conv_in", "conv", "conv_out")


def _of_gemma4(decoder):
    """Return the shapes of what layers of Gemma 4 have, of experts those of vectors."""
    hidden, size = decoder.hidden, decoder.per_layer_inputs
    return {
        "sinks": [decoder.heads], "layer_scale": [1], "per_layer_norm": [size],
        "per_layer_embedding": [decoder.vocabulary, 2 * size],
        "per_layer_projection": [2 * size, hidden], "per_layer_gate": [size, hidden],
        "per_layer_back": [hidden, size], "per_layer_post_norm": [hidden],
        "expert_norm": [hidden], "expert_post_norm": [hidden], "dense_post_norm": [hidden],
        "router_norm": [hidden],
        "expert_scale": [decoder.experts.count if decoder.experts is not None else 1],
    }  # fmt: skip


def _of_latents(decoder):
    """Return the shapes of the tensors of latent attention by their roles."""
    latent, heads, hidden = decoder.latent, decoder.heads, decoder.hidden
    rank, query_rank = latent.rank, latent.query_rank
    return {
        "q_a": [query_rank, hidden], "q_a_norm": [query_rank],
        "q_b": [heads * (latent.key_size + latent.rotated_size), query_rank],
        "kv_a": [rank + latent.rotated_size, hidden], "kv_a_norm": [rank],
        "kv_b": [heads * (latent.key_size + latent.value_size), rank],
        "k_b": [heads, rank, latent.key_size], "v_b": [heads, latent.value_size, rank],
        "o": [hidden, heads * latent.value_size],
    }  # fmt: skip


def _of_linear_attention(decoder):
    """Return the shapes of the tensors of linear attention by their roles."""
    delta, hidden = decoder.delta, decoder.hidden
    values = delta.heads * delta.value_size
    columns = 2 * delta.key_heads * delta.key_size + values
    return {
        "delta_qkv": [columns, hidden], "delta_gate": [values, hidden],
        "delta_beta": [delta.heads, hidden], "delta_rate": [delta.heads, hidden],
        "delta_conv": [columns, delta.kept + 1], "delta_norm": [delta.value_size],
        "delta_out": [hidden, values],
        "delta_ba": [2 * delta.heads, hidden], "delta_qkvz": [columns + values, hidden],
    }  # fmt: skip


def _of_state_space(decoder):
    """Return the shapes of the tensors of a state space model by their roles."""
    space, hidden = decoder.state_space, decoder.hidden
    inner = space.heads * space.head_size
    columns = inner + 2 * space.groups * space.state_size
    return {
        "ssm_in": [inner + columns + space.heads, hidden], "ssm_conv": [columns, space.kept + 1],
        "ssm_norm": [inner], "ssm_out": [hidden, inner],
    }  # fmt: skip


EXPERT_ROLES = (
    "router", "router_bias", "shared_router", "shared_gate", "shared_up", "shared_down",
    "shared_gate_up",
    "expert_gate_up", "expert_gate", "expert_up", "expert_down", "expert_down_stack",
    "expert_gate_bias", "expert_up_bias", "expert_down_bias",
)  # fmt: skip


def _has_experts(decoder, layer):
    return decoder.experts is not None and decoder.experts.layers[layer]


def _tensors_of_experts(decoder, names):
    """Yield the names and shapes of a layer's tensors, as the files of the family have them."""
    experts, hidden = decoder.experts, decoder.hidden
    count, inner, shared = experts.count, experts.intermediate, experts.shared
    shapes = {
        "router": [count, hidden], "shared_router": [1, hidden], "shared_gate": [shared, hidden],
        "shared_up": [shared, hidden], "shared_down": [hidden, shared],
        "shared_gate_up": [2 * shared, hidden], "expert_gate_up": [2 * inner, hidden],
        "expert_down_stack": [hidden, inner],
        "expert_gate": [inner, hidden], "expert_up": [inner, hidden],
        "expert_down": [hidden, inner],
    }  # fmt: skip
    is_transposed = "expert_gate" in decoder.transforms
    for role, name in names.items():
        if role == "router_bias":
            yield name, [count]
        elif role.endswith("_bias"):
            rows = shapes[role.removesuffix("_bias")][0]
            yield name, [count, rows * (1 + is_transposed * (role[7] != "d"))]
        elif "expert_gate" not in names and role in ("expert_gate_up", "expert_down_stack"):
            yield name, [count, *shapes[role]]
        elif role in ("expert_gate_up", "expert_down_stack") or (
            role[:6] == "shared" and not shared
        ):
            continue
        elif "{}" in name:
            yield from ((f"{name}.weight".format(each), shapes[role]) for each in range(count))
        elif role.startswith("expert") and is_transposed:
            rows, columns = shapes[role]
            yield name, [count, columns, rows * (1 + (role != "expert_down"))]
        elif role.startswith("expert"):
            yield f"{name}.weight", [count, *shapes[role]]
        else:
            yield f"{name}.weight", shapes[role]
            if role in decoder.biases:
                yield f"{name}.bias", shapes[role][:1]


MODELS = list(_models())
SEEDS = [bytes([i, 0]) for i in range(len(MODELS))]
_folder = tempfile.TemporaryDirectory(prefix="fuzz-model-settings-")
FOLDER = Path(_folder.name)
FILE = FOLDER / "model.gguf"


def try_input(data):
    choices = Choices(data)
    model = copy.deepcopy(choices.pick(MODELS))
    for _ in range(choices.below(4)):
        change(model, choices, WORDS)
    path = _written(model)
    options = {"max_seq_length": 16, "max_num_batched_tokens": 4, "max_num_batched_requests": 2}
    try:
        kernel = PersistentKernel(model=path, backend="python", page_size=4, **options)
    except FileFormatError as error:
        message = str(error)
        assert message.startswith(str(path)), message
        assert len(message) < 2000, message
        return
    with kernel:
        if choices.rarely():
            assert Program.from_json(kernel.program.to_json()) == kernel.program
            kernel.compile()
            request = kernel.add_request([0, 0, 0])
            assert kernel()[request] < kernel.program.values["logits"].columns


def _written(model):
    """Write the files of a model, which may be none, and return their path."""
    settings, tensors = model.get("settings"), model.get("tensors")
    places, data = tensors_of(tensors)
    if isinstance(settings, dict) and "general.architecture" in settings:
        infos = [
            tensor(name.encode(), FORMATS[kind].ggml_type, *shape[::-1], offset=begin)
            for name, kind, shape, begin, _ in places
            if kind in FORMATS and FORMATS[kind].ggml_type is not None
        ]
        replace(FILE, gguf(keys_of(settings), infos, data))
        return FILE
    header = {
        name: {"dtype": kind.upper(), "shape": shape, "data_offsets": [begin, end]}
        for name, kind, shape, begin, end in places
    }
    replace(FOLDER / "model.safetensors", safetensors(header, data))
    replace(FOLDER / "config.json", json.dumps(settings).encode())
    return FOLDER

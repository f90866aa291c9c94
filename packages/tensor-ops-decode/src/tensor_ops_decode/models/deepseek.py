"""DeepSeek V2 and V3, and GLM 4.7 Flash: multi-head latent attention, and mixtures of experts."""

from collections.abc import Mapping
from typing import Any

from tensor_ops_decode.models.checkpoint import DEFAULTS, gguf_decoder, hugging_face_decoder
from tensor_ops_decode.models.decoder import GGUF_DRAFT, GGUF_NAMES, Decoder, Family
from tensor_ops_decode.models.experts import (
    GGUF_EXPERTS,
    Experts,
    gguf_experts,
    hugging_face_experts,
)
from tensor_ops_decode.models.glm import EPS, MIXTURE_NAMES, layers_behind_dense_ones
from tensor_ops_decode.models.latent_attention import LatentAttention
from tensor_ops_decode.models.rope import yarn_magnitude
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["FAMILIES"]

_V2 = DEFAULTS | {
    "intermediate_size": 11008,
    "vocab_size": 102400,
    "max_position_embeddings": 2048,
    "attention_bias": False,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_intermediate_size": 1407,
    "n_shared_experts": 2,
    "n_routed_experts": 64,
    "routed_scaling_factor": 1.0,
    "topk_method": "greedy",
    "first_k_dense_replace": 0,
    "norm_topk_prob": False,
}
_V3 = _V2 | {
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 4096,
    "rope_interleave": True,
    "moe_intermediate_size": 2048,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "n_routed_experts": 256,
    "routed_scaling_factor": 2.5,
    "n_group": 8,
    "topk_group": 4,
    "first_k_dense_replace": 3,
    "norm_topk_prob": True,
}
_GLM = _V3 | {
    "hidden_size": 2048,
    "intermediate_size": 10240,
    "num_hidden_layers": 47,
    "num_attention_heads": 20,
    "num_key_value_heads": 20,
    "vocab_size": 154880,
    "max_position_embeddings": 202752,
    "rms_norm_eps": 1e-5,
    "q_lora_rank": 768,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "moe_intermediate_size": 1536,
    "num_experts_per_tok": 4,
    "n_routed_experts": 64,
    "routed_scaling_factor": 1.8,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
_LATENT_NAMES = {
    "q_a": "self_attn.q_a_proj",
    "q_a_norm": "self_attn.q_a_layernorm",
    "q_b": "self_attn.q_b_proj",
    "kv_a": "self_attn.kv_a_proj_with_mqa",
    "kv_a_norm": "self_attn.kv_a_layernorm",
    "kv_b": "self_attn.kv_b_proj",
}
_GGUF = (
    GGUF_NAMES
    | GGUF_DRAFT
    | GGUF_EXPERTS
    | {
        "q_a": "attn_q_a",
        "q_a_norm": "attn_q_a_norm",
        "q_b": "attn_q_b",
        "kv_a": "attn_kv_a_mqa",
        "kv_a_norm": "attn_kv_a_norm",
        "kv_b": "attn_kv_b",
        "k_b": "attn_k_b",
        "v_b": "attn_v_b",
    }
)
_BIAS = "exp_probs_b.bias"
# GGUF files keep a tenth of what the magnitude of YaRN is multiplied by.
_OF_MULTIPLIER = 10


def _gguf(files: Weights, settings: ModelSettings) -> Decoder:
    further = settings.size_or_none("nextn_predict_layers")
    heads, rotated = settings.size("attention.head_count"), settings.size("rope.dimension_count")
    # The other keys are of what is attended to, which in older files is not the latents.
    end = "_mla" if "attention.key_length_mla" in settings.values else ""
    whole = settings.size(f"attention.key_length{end}")
    value_size = settings.size(f"attention.value_length{end}")
    if whole <= rotated:
        raise FileFormatError(
            f"{settings.where}: attention.key_length{end} must be more than the {rotated} elements "
            f"that are rotated, got {whole}"
        )
    latent = LatentAttention(
        settings.size_or_none("attention.q_lora_rank"),
        settings.size("attention.kv_lora_rank"),
        whole - rotated,
        rotated,
        value_size,
    )
    values = {
        **settings.values,
        "block_count": settings.size("block_count") - further,
        "attention.head_count_kv": heads,
        "attention.key_length": rotated,
        "attention.value_length": rotated,
    }
    scale = whole**-0.5
    multiplier = settings.number_or_none("rope.scaling.yarn_log_multiplier", 0.0)
    if settings.values.get("rope.scaling.type") == "yarn" and multiplier:
        factor = settings.number("rope.scaling.factor")
        scale *= yarn_magnitude(factor, _OF_MULTIPLIER * multiplier) ** 2
        # In all of these models the two magnitudes of the rotation are one, and cancel.
        del values["rope.scaling.yarn_log_multiplier"]
        values["rope.scaling.yarn_attn_factor"] = 1.0
    settings = ModelSettings(settings.where, values)
    has_bias = any(name.endswith(f".{_BIAS}") for name in files.names)
    return gguf_decoder(
        files,
        settings,
        names=_GGUF | ({"router_bias": _BIAS} if has_bias else {}),
        experts=_gguf_experts(settings, has_bias=has_bias),
        further_layers=further,
        latent=latent,
        scale=scale,
        rotation="interleaved",
    )


def _gguf_experts(settings: ModelSettings, *, has_bias: bool) -> Experts:
    inner = settings.size("expert_feed_forward_length")
    # Older files do not say it; scores with a bias are of sigmoid in all of these models.
    scoring = settings.size_or_none("expert_gating_func") or (2 if has_bias else 1)
    if scoring > 2:
        raise FileFormatError(
            f"{settings.where}: expert_gating_func must be 1 or 2, got {scoring!r:.80}"
        )
    return gguf_experts(
        settings,
        inner,
        scoring=("softmax", "sigmoid")[scoring - 1],
        group_score=("best", "sum_of_best_two")[scoring - 1],
        eps=EPS,
        groups=settings.size("expert_group_count", 1),
        used_groups=settings.size("expert_group_used_count", 1),
        layers=layers_behind_dense_ones(settings, "block_count", "leading_dense_block_count"),
        scale=settings.number("expert_weights_scale", 1.0),
        is_normalised="expert_weights_norm" in settings.values
        and settings.flag("expert_weights_norm"),
        shared=inner * settings.size_or_none("expert_shared_count"),
    )


def _v2(files: Weights, settings: ModelSettings) -> Decoder:
    # Neither is read by transformers' class, and no model has it.
    for name in ("norm_topk_prob", "mlp_bias"):
        settings.require(name, False)
    method = settings.values.get("topk_method")
    if method not in ("greedy", "group_limited_greedy"):
        raise FileFormatError(
            f"{settings.where}: topk_method must be 'greedy' or 'group_limited_greedy', got "
            f"{method!r:.80}"
        )
    groups = _groups(settings) if method != "greedy" else {}
    layers = layers_behind_dense_ones(settings, "num_hidden_layers", "first_k_dense_replace")
    names = {name: each for name, each in MIXTURE_NAMES.items() if name != "router_bias"}
    experts = {"layers": layers, "is_normalised": False, "group_score": "best", **groups}
    return _hugging_face(files, settings, names, experts)


def _v3(files: Weights, settings: ModelSettings) -> Decoder:
    layers = layers_behind_dense_ones(settings, "num_hidden_layers", "first_k_dense_replace")
    return _with_biases(files, settings, layers)


def _glm(files: Weights, settings: ModelSettings) -> Decoder:
    count, kinds = settings.size("num_hidden_layers"), settings.values.get("mlp_layer_types")
    layers = layers_behind_dense_ones(settings, "num_hidden_layers", "first_k_dense_replace")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != count or {*kinds} - {"dense", "sparse"}:
            raise FileFormatError(
                f"{settings.where}: mlp_layer_types must be a list of 'dense' or 'sparse' for each "
                f"of {count} layers, got {kinds!r:.80}"
            )
        layers = tuple(each == "sparse" for each in kinds)
    return _with_biases(files, settings, layers)


def _with_biases(files: Weights, settings: ModelSettings, layers: tuple[bool, ...]) -> Decoder:
    """Return a model whose experts are chosen by scores of sigmoid with a bias."""
    is_interleaved = settings.flag("rope_interleave")
    experts = {
        "scoring": "sigmoid",
        "eps": EPS,
        "layers": layers,
        "is_normalised": settings.flag("norm_topk_prob"),
        **_groups(settings),
    }
    rotation = "interleaved" if is_interleaved else "halves"
    return _hugging_face(files, settings, MIXTURE_NAMES, experts, rotation)


def _hugging_face(
    files: Weights,
    settings: ModelSettings,
    names: Mapping[str, str],
    experts: Mapping[str, Any],
    rotation: str = "interleaved",
) -> Decoder:
    latent = LatentAttention(
        settings.size_or_null("q_lora_rank"),
        settings.size("kv_lora_rank"),
        settings.size("qk_nope_head_dim"),
        settings.size("qk_rope_head_dim"),
        settings.size("v_head_dim"),
    )
    if settings.values.get("num_key_value_heads") is not None:
        settings.require("num_key_value_heads", settings.size("num_attention_heads"))
    is_old = bool(settings.values.get("rope_scaling"))
    rope = settings.section("rope_scaling" if is_old else "rope_parameters")
    scale = (latent.key_size + latent.rotated_size) ** -0.5
    kind = rope.values.get("rope_type", rope.values.get("type", "default"))
    if kind != "default" and (in_all := rope.number_or_none("mscale_all_dim", 0.0)):
        scale *= yarn_magnitude(rope.number("factor"), in_all) ** 2
    values = {**settings.values, "head_dim": latent.rotated_size, "num_key_value_heads": None}
    return hugging_face_decoder(
        files,
        ModelSettings(settings.where, values),
        names={**names, **_LATENT_NAMES},
        biases=("q_a", "kv_a", "o") if settings.flag("attention_bias") else (),
        experts=hugging_face_experts(
            settings,
            "n_routed_experts",
            "num_local_experts",
            "num_experts",
            scale=settings.number("routed_scaling_factor"),
            shared=settings.size("moe_intermediate_size") * settings.size("n_shared_experts"),
            **experts,
        ),
        further_layers=settings.size_or_none("num_nextn_predict_layers", 1),
        latent=latent,
        scale=scale,
        rotation=rotation,
    )


def _groups(settings: ModelSettings) -> dict[str, int]:
    return {"groups": settings.size("n_group"), "used_groups": settings.size("topk_group")}


FAMILIES = (
    Family("DeepSeek V2", "deepseek2", "DeepseekV2ForCausalLM", _V2, _gguf, _v2, True),
    Family("DeepSeek V3", "deepseek2", "DeepseekV3ForCausalLM", _V3, _gguf, _v3, True),
    Family("GLM 4.7 Flash", "deepseek2", "Glm4MoeLiteForCausalLM", _GLM, _gguf, _glm, True),
)

"""GLM 4 MoE, as GLM 4.5 to 4.7 are: an expert for every token, and choices with a bias."""

from typing import Any

from tensor_ops_decode.models.checkpoint import DEFAULTS, gguf_decoder, hugging_face_decoder
from tensor_ops_decode.models.decoder import (
    GGUF_DRAFT,
    GGUF_NAMES,
    HUGGING_FACE_DRAFT,
    HUGGING_FACE_NAMES,
    Decoder,
    Family,
)
from tensor_ops_decode.models.experts import (
    GGUF_EXPERTS,
    HUGGING_FACE_EXPERTS,
    gguf_experts,
    hugging_face_experts,
)
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import Weights

__all__ = ["EPS", "FAMILIES", "MIXTURE_NAMES", "layers_behind_dense_ones"]

_GLM4 = DEFAULTS | {
    "num_hidden_layers": 46,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "intermediate_size": 10944,
    "vocab_size": 151552,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "partial_rotary_factor": 0.5,
    "attention_bias": False,
    "use_qk_norm": False,
    "moe_intermediate_size": 1408,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "n_routed_experts": 128,
    "routed_scaling_factor": 1.0,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "num_nextn_predict_layers": 1,
}
#: What is added to the sum of the weights of experts.
EPS = 1e-20
#: What the tensors of a folder are called.
MIXTURE_NAMES = (
    HUGGING_FACE_NAMES
    | HUGGING_FACE_DRAFT
    | HUGGING_FACE_EXPERTS
    | {
        "router_bias": "mlp.gate.e_score_correction_bias",
        "shared_gate": "mlp.shared_experts.gate_proj",
        "shared_up": "mlp.shared_experts.up_proj",
        "shared_down": "mlp.shared_experts.down_proj",
    }
)
_GGUF = (
    GGUF_NAMES
    | GGUF_DRAFT
    | GGUF_EXPERTS
    | {"mlp_norm": "post_attention_norm", "router_bias": "exp_probs_b.bias"}
)


def _gguf(files: Weights, settings: ModelSettings) -> Decoder:
    further = settings.size_or_none("nextn_predict_layers")
    values = {**settings.values, "block_count": settings.size("block_count") - further}
    settings = ModelSettings(settings.where, values)
    inner = settings.size("expert_feed_forward_length")
    settings.require("expert_gating_func", 2)
    experts = gguf_experts(
        settings,
        inner,
        **_routing(settings, "expert_group_count", "expert_group_used_count"),
        layers=layers_behind_dense_ones(settings, "block_count", "leading_dense_block_count"),
        scale=settings.number("expert_weights_scale", 1.0),
        is_normalised=settings.flag("expert_weights_norm"),
        shared=inner * settings.size("expert_shared_count"),
    )
    norms = {"q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}
    has_norms = "blk.0.attn_q_norm.weight" in files.names
    names = _GGUF | (norms if has_norms else {})
    return gguf_decoder(files, settings, names=names, experts=experts, further_layers=further)


def _hugging_face(files: Weights, settings: ModelSettings) -> Decoder:
    inner = settings.size("moe_intermediate_size")
    experts = hugging_face_experts(
        settings,
        "n_routed_experts",
        "num_local_experts",
        **_routing(settings, "n_group", "topk_group"),
        layers=layers_behind_dense_ones(settings, "num_hidden_layers", "first_k_dense_replace"),
        scale=settings.number("routed_scaling_factor"),
        is_normalised=settings.flag("norm_topk_prob"),
        shared=inner * settings.size("n_shared_experts"),
    )
    norms = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}
    names = MIXTURE_NAMES | (norms if settings.flag("use_qk_norm") else {})
    return hugging_face_decoder(
        files,
        settings,
        rotates_in_part=True,
        names=names,
        biases=("q", "k", "v") if settings.flag("attention_bias") else (),
        experts=experts,
        further_layers=settings.size_or_none("num_nextn_predict_layers"),
    )


def _routing(settings: ModelSettings, groups: str, used: str) -> dict[str, Any]:
    return {
        "scoring": "sigmoid",
        "eps": EPS,
        "groups": settings.size(groups, 1),
        "used_groups": settings.size(used, 1),
    }


def layers_behind_dense_ones(settings: ModelSettings, count: str, dense: str) -> tuple[bool, ...]:
    """Return which layers have experts: all but the first, of which `dense` is the number."""
    first = settings.size_or_none(dense)
    return tuple(layer >= first for layer in range(settings.size(count)))


FAMILIES = (
    Family("GLM 4 MoE", "glm4moe", "Glm4MoeForCausalLM", _GLM4, _gguf, _hugging_face, True),
)

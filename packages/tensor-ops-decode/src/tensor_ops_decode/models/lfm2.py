"""LFM2 and LFM2 MoE: in most layers a short convolution instead of attention."""

import functools
from typing import Any

from tensor_ops_decode.models.checkpoint import (
    DEFAULTS,
    attention_layers,
    gguf_decoder,
    hugging_face_decoder,
)
from tensor_ops_decode.models.decoder import GGUF_NAMES, HUGGING_FACE_NAMES, Decoder, Family
from tensor_ops_decode.models.experts import (
    GGUF_EXPERTS,
    gguf_experts,
    hugging_face_experts,
)
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["FAMILIES"]

_LFM2 = DEFAULTS | {
    "hidden_size": 2560,
    "intermediate_size": 12288,
    "num_key_value_heads": 8,
    "vocab_size": 65536,
    "max_position_embeddings": 128000,
    "norm_eps": 1e-5,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
    "conv_bias": False,
    "conv_L_cache": 3,
    "block_multiple_of": 256,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": True,
}
_LFM2_MOE = _LFM2 | {
    "hidden_size": 2048,
    "intermediate_size": 7168,
    "moe_intermediate_size": 1792,
    "num_dense_layers": 2,
    "num_experts_per_tok": 4,
    "num_experts": 32,
    "use_expert_bias": True,
    "routed_scaling_factor": 1.0,
    "norm_topk_prob": True,
}
_GGUF = (
    GGUF_NAMES
    | GGUF_EXPERTS
    | {
        "q_norm": "attn_q_norm",
        "k_norm": "attn_k_norm",
        "conv_in": "shortconv.in_proj",
        "conv": "shortconv.conv",
        "conv_out": "shortconv.out_proj",
        "router_bias": "exp_probs_b.bias",
    }
)
_HUGGING_FACE = HUGGING_FACE_NAMES | {
    "norm": "model.embedding_norm",
    "attention_norm": "operator_norm",
    "mlp_norm": "ffn_norm",
    "o": "self_attn.out_proj",
    "q_norm": "self_attn.q_layernorm",
    "k_norm": "self_attn.k_layernorm",
    "gate": "feed_forward.w1",
    "up": "feed_forward.w3",
    "down": "feed_forward.w2",
    "conv_in": "conv.in_proj",
    "conv": "conv.conv",
    "conv_out": "conv.out_proj",
    "router": "feed_forward.gate",
    "expert_gate_up": "feed_forward.experts.gate_up_proj",
    "expert_gate": "feed_forward.experts.{}.w1",
    "expert_up": "feed_forward.experts.{}.w3",
    "expert_down": "feed_forward.experts.{}.w2",
    "expert_down_stack": "feed_forward.experts.down_proj",
}
# Some configurations have other names, which win; the second is of LFM2 alone.
_ALIASES = {"tie_embedding": "tie_word_embeddings", "block_ff_dim": "intermediate_size"}
_MOST = 2**31
_EPS = 1e-6


def _gguf(files: Weights, settings: ModelSettings, *, is_mixture: bool) -> Decoder:
    settings, has_attention = attention_layers(settings)
    layers, kept = len(has_attention), settings.size("shortconv.l_cache") - 1
    given: dict[str, Any] = {}
    if is_mixture:
        settings.require("expert_gating_func", 2)
        given["experts"] = gguf_experts(
            settings,
            settings.size("expert_feed_forward_length"),
            scoring="sigmoid",
            eps=_EPS,
            layers=_behind(settings.size_or_none("leading_dense_block_count"), layers),
        )
    window = settings.size_or_none("attention.sliding_window")
    # The last norm has the name of another one in most files.
    norm = "output_norm" if "output_norm.weight" in files.names else "token_embd_norm"
    return gguf_decoder(
        files,
        settings,
        names=_GGUF | {"norm": norm},
        windows=(window,) * layers,
        kept_rows=_kept(settings, kept, [not each for each in has_attention]),
        **given,
    )


def _hugging_face(files: Weights, settings: ModelSettings, *, is_mixture: bool) -> Decoder:
    aliases = list(_ALIASES)[: 1 if is_mixture else 2]
    known = settings.values
    stated = {_ALIASES[name]: known[name] for name in aliases if name in known}
    settings = ModelSettings(settings.where, {**known, **stated})
    layers, given = settings.size("num_hidden_layers"), dict[str, Any]()
    names = _HUGGING_FACE
    if is_mixture:
        given["experts"] = hugging_face_experts(
            settings,
            "num_experts",
            scoring="sigmoid",
            eps=_EPS,
            is_normalised=settings.flag("norm_topk_prob"),
            scale=settings.number("routed_scaling_factor"),
            layers=_behind(settings.size_or_none("num_dense_layers"), layers),
        )
        if settings.flag("use_expert_bias"):
            names = names | {"router_bias": "feed_forward.expert_bias"}
    elif settings.flag("block_auto_adjust_ff_dim"):
        given["intermediate"] = _adjusted(settings)
    return hugging_face_decoder(
        files,
        settings,
        names=names,
        activation="silu_mul",
        biases=("conv_in", "conv", "conv_out") if settings.flag("conv_bias") else (),
        eps=settings.number("norm_eps"),
        kept_rows=_kept(
            settings,
            settings.size("conv_L_cache") - 1,
            _convolutions(settings, has_indices=not is_mixture),
        ),
        **given,
    )


def _behind(first: int, layers: int) -> tuple[bool, ...]:
    return tuple(layer >= first for layer in range(layers))


def _kept(settings: ModelSettings, kept: int, are_convolutions: list[bool]) -> tuple[int, ...]:
    if kept < 1 and any(are_convolutions):
        raise FileFormatError(
            f"{settings.where}: a short convolution must be of two tokens or more"
        )
    return tuple(kept if each else 0 for each in are_convolutions)


def _convolutions(settings: ModelSettings, *, has_indices: bool) -> list[bool]:
    """Return for each layer whether it has a convolution, by one of two settings."""
    layers, types = settings.size("num_hidden_layers"), settings.values.get("layer_types")
    if types is None:
        attending = settings.values.get("full_attn_idxs") if has_indices else None
        if attending is None:
            return [False] * layers
        if not isinstance(attending, list) or not all(type(each) is int for each in attending):
            raise FileFormatError(
                f"{settings.where}: full_attn_idxs must be a list of layers, got {attending!r:.80}"
            )
        return [layer not in attending for layer in range(layers)]
    if not isinstance(types, list) or len(types) != layers:
        raise FileFormatError(f"{settings.where}: layer_types must be a list of {layers} types")
    for each in types:
        if each not in ("conv", "full_attention"):
            raise FileFormatError(
                f"{settings.where}: layer_types has {each!r:.80}; supported are conv, "
                "full_attention"
            )
    return [each == "conv" for each in types]


def _adjusted(settings: ModelSettings) -> int:
    """Return the inner columns of an MLP: two thirds of a size, times a factor, rounded up."""
    columns = int(2 * settings.size("intermediate_size") / 3)
    if factor := settings.number_or_null("block_ffn_dim_multiplier"):
        step = settings.size("block_multiple_of")
        if factor * columns > _MOST:
            raise FileFormatError(
                f"{settings.where}: block_ffn_dim_multiplier is {factor:g}, which makes an MLP of "
                f"more than {_MOST} columns"
            )
        columns = -(-int(factor * columns) // step) * step
    return columns


FAMILIES = (
    Family(
        "LFM2",
        "lfm2",
        "Lfm2ForCausalLM",
        _LFM2,
        functools.partial(_gguf, is_mixture=False),
        functools.partial(_hugging_face, is_mixture=False),
    ),
    Family(
        "LFM2 MoE",
        "lfm2moe",
        "Lfm2MoeForCausalLM",
        _LFM2_MOE,
        functools.partial(_gguf, is_mixture=True),
        functools.partial(_hugging_face, is_mixture=True),
        may_have_experts=True,
    ),
)

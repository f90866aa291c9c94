"""Granite 4, dense and as a mixture: in most layers a state space model instead of attention."""

import dataclasses
import math
from typing import Any

from tensor_ops_decode.models.checkpoint import (
    DEFAULTS,
    attention_layers,
    gguf_decoder,
    hugging_face_decoder,
)
from tensor_ops_decode.models.decoder import GGUF_NAMES, HUGGING_FACE_NAMES, Decoder, Family
from tensor_ops_decode.models.experts import GGUF_EXPERTS, gguf_experts, hugging_face_experts
from tensor_ops_decode.models.granite import FACTORS, gguf_factors, hugging_face_factors
from tensor_ops_decode.models.rope import Rope
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.models.state_space import StateSpace
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["FAMILIES"]

_DEFAULTS = (
    DEFAULTS
    | FACTORS
    | {
        "intermediate_size": 11008,
        "shared_intermediate_size": 1024,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "attention_bias": False,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "mamba_n_heads": 128,
        "mamba_n_groups": 1,
        "mamba_d_state": 256,
        "mamba_d_head": "auto",
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
    }
)
_GGUF = GGUF_NAMES | {
    "ssm_in": "ssm_in",
    "ssm_conv": "ssm_conv1d",
    "ssm_rate": "ssm_a",
    "ssm_step_bias": "ssm_dt.bias",
    "ssm_skip": "ssm_d",
    "ssm_norm": "ssm_norm",
    "ssm_out": "ssm_out",
}
_HUGGING_FACE = HUGGING_FACE_NAMES | {
    "ssm_in": "mamba.in_proj",
    "ssm_conv": "mamba.conv1d",
    "ssm_rate": "mamba.A_log",
    "ssm_step_bias": "mamba.dt_bias",
    "ssm_skip": "mamba.D",
    "ssm_norm": "mamba.norm",
    "ssm_out": "mamba.out_proj",
    "gate_up": "shared_mlp.input_linear",
    "down": "shared_mlp.output_linear",
}
_EXPERTS = {
    "router": "block_sparse_moe.router.layer",
    "expert_gate_up": "block_sparse_moe.input_linear",
    "expert_down_stack": "block_sparse_moe.output_linear",
    "shared_gate_up": "shared_mlp.input_linear",
    "shared_down": "shared_mlp.output_linear",
}
# A model in memory has other names than its files.
_EXPERTS_IN_MEMORY = _EXPERTS | {
    "router": "block_sparse_moe.router",
    "expert_gate_up": "block_sparse_moe.experts.gate_up_proj",
    "expert_down_stack": "block_sparse_moe.experts.down_proj",
}
# The first two are of older versions of transformers.
_TYPES = {"mamba": True, "attention": False, "linear_attention": True, "full_attention": False}
_SCORING = "softmax_of_chosen"


def _gguf(files: Weights, settings: ModelSettings) -> Decoder:
    settings, has_attention = attention_layers(settings)
    inner, heads = settings.size("ssm.inner_size"), settings.size("ssm.time_step_rank")
    state_space = _checked(
        settings,
        inner,
        StateSpace(
            layers=tuple(not each for each in has_attention),
            heads=heads,
            head_size=inner // heads,
            groups=settings.size("ssm.group_count"),
            state_size=settings.size("ssm.state_size"),
            kept=settings.size("ssm.conv_kernel") - 1,
            has_bias=any(name.endswith(".ssm_conv1d.bias") for name in files.names),
        ),
    )
    length = settings.size("feed_forward_length")
    shared = settings.size("expert_shared_feed_forward_length", length)
    names, given = _GGUF, dict[str, Any]()
    if settings.size_or_none("expert_count"):
        names = names | GGUF_EXPERTS
        given["experts"] = gguf_experts(
            settings, length, scoring=_SCORING, is_normalised=False, shared=shared
        )
    decoder = gguf_decoder(
        files,
        settings,
        names=names,
        rotation="interleaved",
        transforms={"ssm_rate": ("flatten",), "ssm_skip": ("flatten",)},
        state_space=state_space,
        intermediate=shared,  # without experts this is the only MLP
        **gguf_factors(settings),
        **given,
    )
    name = "rope.scaling.finetuned"
    rotates = name not in settings.values or settings.flag(name)
    return decoder if rotates else _without_rotation(decoder)


def _hugging_face(files: Weights, settings: ModelSettings) -> Decoder:
    settings.require("mamba_proj_bias", False)
    _require_no_limit(settings)
    heads = settings.size("mamba_n_heads")
    inner = settings.size("mamba_expand") * settings.size("hidden_size")
    is_auto = settings.values.get("mamba_d_head") == "auto"
    state_space = _checked(
        settings,
        inner,
        StateSpace(
            layers=_state_space_layers(settings),
            heads=heads,
            head_size=inner // heads if is_auto else settings.size("mamba_d_head"),
            groups=settings.size("mamba_n_groups"),
            state_size=settings.size("mamba_d_state"),
            kept=settings.size("mamba_d_conv") - 1,
            has_bias=settings.flag("mamba_conv_bias"),
        ),
    )
    names, given = _HUGGING_FACE, dict[str, Any]()
    shared = settings.size("shared_intermediate_size")
    if settings.size_or_none("num_local_experts"):
        is_file = "model.layers.0.block_sparse_moe.router.layer.weight" in files.names
        names = names | (_EXPERTS if is_file else _EXPERTS_IN_MEMORY)
        given["experts"] = hugging_face_experts(
            settings,
            "num_local_experts",
            scoring=_SCORING,
            is_normalised=False,
            intermediate=settings.size("intermediate_size"),
            shared=shared,
        )
    decoder = hugging_face_decoder(
        files,
        settings,
        bias_flags=("attention_bias",),
        names=names,
        transforms={"ssm_rate": ("neg_exp",)},
        state_space=state_space,
        intermediate=shared,
        **hugging_face_factors(settings),
        **given,
    )
    rotates = settings.values.get("position_embedding_type") == "rope"
    return decoder if rotates else _without_rotation(decoder)


def _require_no_limit(settings: ModelSettings) -> None:
    """Raise a FileFormatError where steps have other bounds than 0 and infinity."""
    limit = settings.values.get("time_step_limit")
    if limit is None:
        return
    bounds = list(limit) if isinstance(limit, (list, tuple)) else []
    # JSON has no infinity, for which transformers writes an object.
    if len(bounds) != 2 or bounds[0] != 0 or not _is_infinite(bounds[1]):
        raise FileFormatError(
            f"{settings.where}: time_step_limit must be 0 and infinity, got {limit!r:.80}"
        )


def _is_infinite(bound: object) -> bool:
    return bound in (math.inf, "Infinity", {"__float__": "Infinity"})


def _state_space_layers(settings: ModelSettings) -> tuple[bool, ...]:
    layers = settings.size("num_hidden_layers")
    types = settings.values.get("layer_types", settings.values.get("layers_block_type"))
    if types is None:
        return (True,) * layers
    if not isinstance(types, list) or len(types) != layers or not all(t in _TYPES for t in types):
        raise FileFormatError(
            f"{settings.where}: layer_types must be a list of {layers} types, each of them "
            f"{', '.join(_TYPES)}, got {types!r:.80}"
        )
    return tuple(_TYPES[each] for each in types)


def _checked(settings: ModelSettings, inner: int, of: StateSpace) -> StateSpace:
    """Return a state space model if its sizes fit; raise a FileFormatError if they do not."""
    if of.heads * of.head_size != inner:
        raise FileFormatError(
            f"{settings.where}: {of.heads} heads of {of.head_size} elements do not make the "
            f"{inner} columns of the state space model"
        )
    if of.heads % of.groups:
        raise FileFormatError(
            f"{settings.where}: {of.heads} heads of the state space model are no multiple of its "
            f"{of.groups} groups"
        )
    if of.kept < 1:
        raise FileFormatError(f"{settings.where}: a convolution must be of two tokens or more")
    return of


def _without_rotation(decoder: Decoder) -> Decoder:
    return dataclasses.replace(decoder, ropes=(Rope(()),) * decoder.layers)


FAMILIES = (
    Family(
        "Granite 4",
        "granitehybrid",
        "GraniteMoeHybridForCausalLM",
        _DEFAULTS,
        _gguf,
        _hugging_face,
        may_have_experts=True,
    ),
)

"""Qwen 3 Next and 3.5: three of four layers have linear attention, and the others gates."""

import functools
from typing import Any

from tensor_ops_decode.models.checkpoint import DEFAULTS, gguf_decoder, hugging_face_decoder
from tensor_ops_decode.models.decoder import (
    GGUF_DRAFT,
    GGUF_NAMES,
    HUGGING_FACE_NAMES,
    Decoder,
    Family,
)
from tensor_ops_decode.models.delta_attention import DeltaAttention
from tensor_ops_decode.models.experts import (
    GGUF_EXPERTS,
    QWEN_EXPERTS,
    alternating_layers,
    gguf_experts,
    hugging_face_experts,
)
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["FAMILIES"]

_QWEN35 = DEFAULTS | {
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 12288,
    "vocab_size": 248320,
    "max_position_embeddings": 32768,
    "head_dim": 256,
    "partial_rotary_factor": 0.25,
    "attention_bias": False,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "full_attention_interval": 4,
}
_QWEN35_MOE = _QWEN35 | {
    "hidden_size": 2048,
    "num_hidden_layers": 40,
    "num_key_value_heads": 2,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts_per_tok": 8,
    "num_experts": 256,
}
_QWEN3_NEXT = _QWEN35_MOE | {
    "num_hidden_layers": 48,
    "intermediate_size": 5632,
    "vocab_size": 151936,
    "num_experts_per_tok": 10,
    "num_experts": 512,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
}
_HUGGING_FACE = HUGGING_FACE_NAMES | {
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "delta_qkv": "linear_attn.in_proj_qkv",
    "delta_gate": "linear_attn.in_proj_z",
    "delta_beta": "linear_attn.in_proj_b",
    "delta_rate": "linear_attn.in_proj_a",
    "delta_conv": "linear_attn.conv1d",
    "delta_decay": "linear_attn.A_log",
    "delta_bias": "linear_attn.dt_bias",
    "delta_norm": "linear_attn.norm",
    "delta_out": "linear_attn.out_proj",
}
# The layer that guesses tokens, which has attention.
_DRAFT = {
    "draft": "mtp.",
    "draft_layer": "mtp.layers.{}.",
    "draft_in": "fc",
    "draft_embedding_norm": "pre_fc_norm_embedding",
    "draft_hidden_norm": "pre_fc_norm_hidden",
    "draft_norm": "norm",
}
_GGUF = (
    GGUF_NAMES
    | GGUF_DRAFT
    | {
        "mlp_norm": "post_attention_norm",
        "q_norm": "attn_q_norm",
        "k_norm": "attn_k_norm",
        "delta_qkv": "attn_qkv",
        "delta_gate": "attn_gate",
        "delta_beta": "ssm_beta",
        "delta_rate": "ssm_alpha",
        "delta_conv": "ssm_conv1d",
        "delta_decay": "ssm_a",
        "delta_bias": "ssm_dt.bias",
        "delta_norm": "ssm_norm",
        "delta_out": "ssm_out",
    }
)
_GGUF_EXPERTS = GGUF_EXPERTS | {"shared_router": "ffn_gate_inp_shexp"}
# Where Qwen 3 Next has fewer matrices.
_JOINED = {"delta_qkvz": "linear_attn.in_proj_qkvz", "delta_ba": "linear_attn.in_proj_ba"}
_PREFIX = "model.language_model."


def _gguf(
    files: Weights, settings: ModelSettings, *, is_mixture: bool, is_next: bool = False
) -> Decoder:
    further = settings.size_or_none("nextn_predict_layers")
    layers = settings.size("block_count") - further
    are_linear = _recurrent_layers(settings, layers)
    known = {**settings.values, "block_count": layers}
    given: dict[str, Any] = {}
    if is_mixture:
        inner = settings.size("expert_feed_forward_length")
        # No layer has another MLP.
        known.setdefault("feed_forward_length", inner)
        shared = settings.size("expert_shared_feed_forward_length", inner)
        given["experts"] = gguf_experts(ModelSettings(settings.where, known), inner, shared=shared)
    settings = ModelSettings(settings.where, known)
    heads, inner = settings.size("ssm.time_step_rank"), settings.size("ssm.inner_size")
    if inner % heads:
        raise FileFormatError(
            f"{settings.where}: ssm.inner_size must be a multiple of the {heads} heads of "
            f"ssm.time_step_rank, got {inner}"
        )
    delta = _checked(
        settings,
        DeltaAttention(
            layers=are_linear,
            key_heads=settings.size("ssm.group_count"),
            heads=heads,
            key_size=settings.size("ssm.state_size"),
            value_size=inner // heads,
            kept=settings.size("ssm.conv_kernel") - 1,
            order="grouped" if is_next else "tiled",
        ),
    )
    names = _GGUF | (_GGUF_EXPERTS if is_mixture else {})
    return gguf_decoder(
        files,
        settings,
        names=names | ({"delta_ba": "ssm_ba"} if is_next else {}),
        delta=delta,
        gates_attention=True,
        further_layers=further,
        **given,
    )


def _hugging_face(
    files: Weights,
    settings: ModelSettings,
    prefix: str = "model.",
    *,
    is_mixture: bool,
    is_next: bool = False,
) -> Decoder:
    settings.require("attention_bias", False)
    delta = _checked(
        settings,
        DeltaAttention(
            layers=_linear_layers(settings),
            key_heads=settings.size("linear_num_key_heads"),
            heads=settings.size("linear_num_value_heads"),
            key_size=settings.size("linear_key_head_dim"),
            value_size=settings.size("linear_value_head_dim"),
            kept=settings.size("linear_conv_kernel_dim") - 1,
            order="grouped",
        ),
    )
    given: dict[str, Any] = {}
    of_experts: dict[str, Any] = {}
    if is_next:
        of_experts["layers"] = alternating_layers(settings)
        of_experts["is_normalised"] = settings.flag("norm_topk_prob")
    if is_mixture:
        of_experts["shared"] = settings.size("shared_expert_intermediate_size")
        given["experts"] = hugging_face_experts(settings, "num_experts", **of_experts)
    all_names = _HUGGING_FACE | (QWEN_EXPERTS if is_mixture else {})
    all_names |= _JOINED if is_next else {}
    names = {role: name.replace("model.", prefix, 1) for role, name in all_names.items()} | _DRAFT
    return hugging_face_decoder(
        files,
        settings,
        rotates_in_part=True,
        names=names,
        norm_transform=("plus_one",),
        transforms={"delta_decay": ("neg_exp",)},
        delta=delta,
        gates_attention=True,
        **given,
    )


def _text(files: Weights, settings: ModelSettings, *, is_mixture: bool) -> Decoder:
    """Return what config.json says of the text in a model of more than text."""
    given: dict[str, Any] = {**settings.values}
    if files.metadata.get("tie_word_embeddings") is not None:
        given["tie_word_embeddings"] = files.metadata["tie_word_embeddings"]
    settings = ModelSettings(settings.where, given)
    return _hugging_face(files, settings, _PREFIX, is_mixture=is_mixture)


def _recurrent_layers(settings: ModelSettings, layers: int) -> tuple[bool, ...]:
    """Return which layers of a GGUF file have linear attention: by a list, or by an interval."""
    listed = settings.values.get("attention.recurrent_layers")
    if listed is None:
        interval = settings.size("full_attention_interval", 4)
        return tuple((layer + 1) % interval > 0 for layer in range(layers))
    is_list = isinstance(listed, list) and len(listed) >= layers
    if not is_list or not all(isinstance(each, (bool, int)) for each in listed):
        raise FileFormatError(
            f"{settings.where}: attention.recurrent_layers must be a list of {layers} flags or "
            f"more, got {listed!r:.80}"
        )
    return tuple(bool(each) for each in listed[:layers])


def _linear_layers(settings: ModelSettings) -> tuple[bool, ...]:
    layers, types = settings.size("num_hidden_layers"), settings.values.get("layer_types")
    if types is None:
        interval = settings.size("full_attention_interval")
        return tuple((layer + 1) % interval > 0 for layer in range(layers))
    known = ("linear_attention", "full_attention")
    if not isinstance(types, list) or len(types) != layers or not all(t in known for t in types):
        raise FileFormatError(
            f"{settings.where}: layer_types must be a list of {layers} types, each of them "
            f"{' or '.join(known)}, got {types!r:.80}"
        )
    return tuple(each == "linear_attention" for each in types)


def _checked(settings: ModelSettings, delta: DeltaAttention) -> DeltaAttention:
    """Return linear attention if its sizes fit; raise a FileFormatError if they do not."""
    if delta.heads % delta.key_heads:
        raise FileFormatError(
            f"{settings.where}: {delta.heads} value heads of linear attention are no multiple of "
            f"its {delta.key_heads} key heads"
        )
    if delta.kept < 1:
        raise FileFormatError(f"{settings.where}: a convolution must be of two tokens or more")
    return delta


def _families(name: str, gguf: str, start: str, defaults: Any, *, is_mixture: bool) -> list[Family]:
    """Return a family twice: as a model of text, and as the text of a model of more."""
    readers = {
        reader: functools.partial(reader, is_mixture=is_mixture)
        for reader in (_gguf, _hugging_face, _text)
    }
    of_gguf = readers[_gguf]
    return [
        Family(
            name,
            gguf,
            f"{start}ForCausalLM",
            defaults,
            of_gguf,
            readers[_hugging_face],
            may_have_experts=is_mixture,
        ),
        Family(
            f"{name}, text",
            gguf,
            f"{start}ForConditionalGeneration",
            defaults,
            of_gguf,
            readers[_text],
            may_have_experts=is_mixture,
            within="text_config",
        ),
    ]


FAMILIES = (
    Family(
        "Qwen 3 Next",
        "qwen3next",
        "Qwen3NextForCausalLM",
        _QWEN3_NEXT,
        functools.partial(_gguf, is_mixture=True, is_next=True),
        functools.partial(_hugging_face, is_mixture=True, is_next=True),
        may_have_experts=True,
    ),
    *_families("Qwen 3.5", "qwen35", "Qwen3_5", _QWEN35, is_mixture=False),
    *_families("Qwen 3.5 MoE", "qwen35moe", "Qwen3_5Moe", _QWEN35_MOE, is_mixture=True),
)

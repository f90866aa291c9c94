"""Gemma 4, dense and as a mixture: layers of two sizes, some of which share keys and values.

Layers with a window have other heads than those without. The last layers may have no keys and
values: they attend to those of the last layer before them with or without a window, as their own
is. Layers may have an embedding of their own, and experts beside the MLP that every token computes.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from tensor_ops_decode.models.checkpoint import (
    DEFAULTS,
    gguf_decoder,
    hugging_face_decoder,
    layer_ropes,
    layer_windows,
)
from tensor_ops_decode.models.decoder import GGUF_NAMES, HUGGING_FACE_NAMES, Decoder, Family
from tensor_ops_decode.models.experts import GGUF_EXPERTS, gguf_experts, hugging_face_experts
from tensor_ops_decode.models.layer_sizes import LayerSizes
from tensor_ops_decode.models.rope import Rope, gguf_rope, hugging_face_rope
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["FAMILIES"]

_ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 1e6,
    },
}
_DEFAULTS = DEFAULTS | {
    "hidden_size": 2304,
    "num_hidden_layers": 30,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "global_head_dim": 512,
    "intermediate_size": 9216,
    "vocab_size": 262144,
    "max_position_embeddings": 131072,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "attention_bias": False,
    "attention_k_eq_v": False,
    "enable_moe_block": False,
    "use_double_wide_mlp": False,
    "hidden_size_per_layer_input": 256,
    "num_kv_shared_layers": 0,
    "sliding_window": 512,
    "rope_local_base_freq": 10000.0,
}
_GGUF = GGUF_NAMES | {
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "attention_post_norm": "post_attention_norm",
    "mlp_post_norm": "post_ffw_norm",
    "layer_scale": "layer_output_scale.weight",
    "per_layer_embedding": "per_layer_token_embd",
    "per_layer_projection": "per_layer_model_proj",
    "per_layer_norm": "per_layer_proj_norm",
    "per_layer_gate": "inp_gate",
    "per_layer_back": "proj",
    "per_layer_post_norm": "post_norm",
}
_GGUF_EXPERTS = GGUF_EXPERTS | {
    "router_norm": "ffn_gate_inp.scale",
    "expert_norm": "pre_ffw_norm_2",
    "expert_scale": "ffn_down_exps.scale",
    "dense_post_norm": "post_ffw_norm_1",
    "expert_post_norm": "post_ffw_norm_2",
}
_HUGGING_FACE = HUGGING_FACE_NAMES | {
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "attention_post_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
    "layer_scale": "layer_scalar",
    "per_layer_embedding": "model.embed_tokens_per_layer",
    "per_layer_projection": "model.per_layer_model_projection",
    "per_layer_norm": "model.per_layer_projection_norm",
    "per_layer_gate": "per_layer_input_gate",
    "per_layer_back": "per_layer_projection",
    "per_layer_post_norm": "post_per_layer_input_norm",
}
_EXPERTS = {
    "router": "router.proj",
    "router_norm": "router.scale",
    "expert_norm": "pre_feedforward_layernorm_2",
    "expert_scale": "router.per_expert_scale",
    "expert_gate_up": "experts.gate_up_proj",
    "expert_gate": "experts.{}.gate_proj",
    "expert_up": "experts.{}.up_proj",
    "expert_down": "experts.{}.down_proj",
    "expert_down_stack": "experts.down_proj",
    "dense_post_norm": "post_feedforward_layernorm_1",
    "expert_post_norm": "post_feedforward_layernorm_2",
}
_SAME: dict[str, Any] = {
    "activation": "gelu_mul",
    "activation_settings": {"approximate": "tanh"},
    "scale": 1.0,
    "normalises_values": True,
}
# A pair of elements whose frequency is divided by more stands still.
_FACTORS, _MOST_FACTOR = "rope_freqs.weight", 1e20


def _gguf(files: Weights, settings: ModelSettings) -> Decoder:
    layers, hidden = settings.size("block_count"), settings.size("embedding_length")
    windowed = _flags(settings, "attention.sliding_window_pattern", layers)
    full, within = (_head_size(settings, kind) for kind in ("", "_swa"))
    kv_heads = _of_layers(settings, "attention.head_count_kv", layers)
    sizes = [
        LayerSizes(
            within if has_window else full,
            kv_heads[layer],
            intermediate,
            layer,
            f"blk.{layer}.attn_v.weight" in files.names,
        )
        for layer, (has_window, intermediate) in enumerate(
            zip(windowed, _of_layers(settings, "feed_forward_length", layers), strict=True)
        )
    ]
    name = "attention.shared_kv_layers"
    sizes = _shared(settings, name, settings.size_or_none(name), sizes, windowed)
    names, given = _GGUF, dict[str, Any]()
    if settings.size_or_none("expert_count"):
        names = names | _GGUF_EXPERTS
        inner = settings.size("expert_feed_forward_length")
        given["experts"] = gguf_experts(settings, inner, router_scale=hidden**-0.5)
    first = {"attention.head_count_kv": kv_heads[0], "feed_forward_length": sizes[0].intermediate}
    window = settings.size("attention.sliding_window") if any(windowed) else 0
    return gguf_decoder(
        files,
        ModelSettings(settings.where, {**settings.values, **first}),
        names=names,
        ropes=_gguf_ropes(files, settings, windowed, full, within),
        windows=tuple(window if has_window else 0 for has_window in windowed),
        layer_sizes=_checked(settings, sizes, settings.size("attention.head_count")),
        per_layer_inputs=settings.size_or_none("embedding_length_per_layer_input"),
        embedding_scale=hidden**0.5,
        logit_cap=settings.number_or_none("final_logit_softcapping", 0.0),
        **_SAME,
        **given,
    )


def _gguf_ropes(
    files: Weights, settings: ModelSettings, windowed: Sequence[bool], full: int, within: int
) -> tuple[Rope, ...]:
    """Return the rotation of each layer: the factors of a file are for those without a window."""
    if not all(windowed) and _FACTORS not in files.names:
        raise FileFormatError(f"{files.path}: tensor {_FACTORS!r} is missing")
    everywhere = gguf_rope(files, settings, full)
    least = everywhere.frequencies[0] / _MOST_FACTOR
    turning = tuple(each if each > least else 0.0 for each in everywhere.frequencies)
    everywhere = dataclasses.replace(everywhere, frequencies=turning)
    settings.require("rope.dimension_count_swa", within)
    base = {"rope_theta": settings.number("rope.freq_base_swa", 10000.0)}
    local = hugging_face_rope(settings, ModelSettings(settings.where, base), within)
    return tuple(local if has_window else everywhere for has_window in windowed)


def _head_size(settings: ModelSettings, kind: str) -> int:
    size = settings.size(f"attention.key_length{kind}")
    settings.require(f"attention.value_length{kind}", size)
    return size


def _of_layers(settings: ModelSettings, name: str, layers: int) -> list[int]:
    """Return a size of each layer, which a file has as one number or as a list."""
    values = settings.values.get(name)
    if not isinstance(values, list):
        return [settings.size(name)] * layers
    if len(values) < layers:
        raise FileFormatError(
            f"{settings.where}: {name} must have a number for each of {layers} layers, got "
            f"{len(values)}"
        )
    found = ModelSettings(settings.where, {f"{name}[{i}]": each for i, each in enumerate(values)})
    return [found.size(f"{name}[{layer}]") for layer in range(layers)]


def _flags(settings: ModelSettings, name: str, layers: int) -> list[bool]:
    values = settings.values.get(name)
    is_list = isinstance(values, list) and len(values) >= layers
    if not is_list or not all(isinstance(each, (bool, int)) for each in values or ()):
        raise FileFormatError(
            f"{settings.where}: {name} must be a list of {layers} flags or more, got {values!r:.80}"
        )
    return [bool(each) for each in (values or ())[:layers]]


def _hugging_face(files: Weights, settings: ModelSettings, prefix: str = "model.") -> Decoder:
    settings.require("hidden_activation", "gelu_pytorch_tanh")
    if settings.values.get("use_bidirectional_attention") == "all":
        raise FileFormatError(
            f"{settings.where}: use_bidirectional_attention is 'all'; only attention to earlier "
            "tokens is supported"
        )
    if settings.values.get("rope_parameters") is None:
        settings = ModelSettings(settings.where, {**settings.values, "rope_parameters": _ROPES})
    windows = layer_windows(settings, lambda layer: (layer + 1) % 6 != 0)
    windows = (*windows[:-1], 0)  # whatever the file says, the last layer has none
    sizes = _hugging_face_sizes(settings, windows)
    hidden, names, given = settings.size("hidden_size"), _HUGGING_FACE, dict[str, Any]()
    if settings.flag("enable_moe_block"):
        names = names | _EXPERTS
        given["experts"] = hugging_face_experts(
            settings, "num_experts", top_k="top_k_experts", router_scale=hidden**-0.5
        )
    return hugging_face_decoder(
        files,
        settings,
        names={role: name.replace("model.", prefix, 1) for role, name in names.items()},
        ropes=layer_ropes(settings, windows, [each.head_size for each in sizes]),
        windows=windows,
        layer_sizes=_checked(settings, sizes, settings.size("num_attention_heads")),
        per_layer_inputs=settings.size_or_none("hidden_size_per_layer_input"),
        embedding_scale=hidden**0.5,
        logit_cap=settings.number_or_null("final_logit_softcapping"),
        bias_flags=("attention_bias",),
        **_SAME,
        **given,
    )


def _hugging_face_sizes(settings: ModelSettings, windows: Sequence[int]) -> list[LayerSizes]:
    k_is_v, shared = (
        settings.flag("attention_k_eq_v"),
        settings.size_or_none("num_kv_shared_layers"),
    )
    is_wide, intermediate = settings.flag("use_double_wide_mlp"), settings.size("intermediate_size")
    # transformers saves what some layers have instead, and before that had the sizes of one kind.
    listed = _listed_sizes(settings) if "per_layer_config" in settings.values else None
    of_full = {"head_dim": settings.size("global_head_dim")}
    if k_is_v and settings.size_or_null("num_global_key_value_heads"):
        of_full["num_key_value_heads"] = settings.size("num_global_key_value_heads")
    usual = {name: settings.values[name] for name in ("head_dim", "num_key_value_heads")}
    sizes = []
    for layer, window in enumerate(windows):
        own: Mapping[str, Any] = of_full if not window else {}
        if listed is not None:
            own = listed.get(layer, {})
        if unknown := sorted(own.keys() - usual.keys()):
            raise FileFormatError(
                f"{settings.where}: per_layer_config has {unknown[0]!r:.80} for layer {layer}; "
                f"supported are {' and '.join(usual)}"
            )
        of = ModelSettings(settings.where, {**usual, **own})
        wide = 2 if is_wide and layer >= len(windows) - shared else 1
        heads = of.size("num_key_value_heads")
        has_values = not (k_is_v and not window)
        sizes.append(LayerSizes(of.size("head_dim"), heads, wide * intermediate, layer, has_values))
    return _shared(settings, "num_kv_shared_layers", shared, sizes, list(map(bool, windows)))


def _listed_sizes(settings: ModelSettings) -> dict[int, Mapping[str, Any]]:
    """Return what layers have instead of what all have, by their numbers, which may be words."""
    listed, found = settings.section("per_layer_config"), dict[int, Mapping[str, Any]]()
    for name in listed.values:
        if not str(name).isdecimal():
            raise FileFormatError(
                f"{settings.where}: per_layer_config must name layers by their numbers, got "
                f"{name!r:.80}"
            )
        found[int(name)] = listed.section(name).values
    return found


def _shared(
    settings: ModelSettings,
    name: str,
    shared: int,
    sizes: Sequence[LayerSizes],
    windowed: Sequence[bool],
) -> list[LayerSizes]:
    """Return the sizes where the last layers, `shared` of them, attend to what earlier ones keep.

    Each has that of the last layer before all of these that has a window as it does, or has none.
    """
    first, found = len(sizes) - shared, list(sizes)
    for layer in range(max(first, 0), len(sizes)):
        of = [i for i in range(first) if windowed[i] == windowed[layer]]
        kind = "with" if windowed[layer] else "without"
        if not of:
            raise FileFormatError(
                f"{settings.where}: {name} is {shared} of {len(sizes)} layers, but layer {layer}, "
                f"{kind} a window, has none before these whose keys and values it could share"
            )
        kept, own = sizes[of[-1]], sizes[layer]
        if (kept.head_size, kept.kv_heads) != (own.head_size, own.kv_heads):
            raise FileFormatError(
                f"{settings.where}: layer {layer} has {own.kv_heads} heads of {own.head_size} "
                f"elements, but layer {of[-1]}, whose keys and values it shares, has "
                f"{kept.kv_heads} of {kept.head_size}"
            )
        found[layer] = dataclasses.replace(own, cache=of[-1])
    return found


def _checked(
    settings: ModelSettings, sizes: Sequence[LayerSizes], heads: int
) -> tuple[LayerSizes, ...]:
    """Return sizes whose heads of keys and values divide those of queries."""
    for layer, each in enumerate(sizes):
        if heads % each.kv_heads:
            raise FileFormatError(
                f"{settings.where}: the heads of keys and values must divide the {heads} heads of "
                f"queries, got {each.kv_heads} in layer {layer}"
            )
    return tuple(sizes)


def _text(files: Weights, settings: ModelSettings) -> Decoder:
    """Return what config.json says of the text in a model of more than text."""
    tied = files.metadata.get("tie_word_embeddings")
    given = {} if tied is None else {"tie_word_embeddings": tied}
    settings = ModelSettings(settings.where, {**settings.values, **given})
    return _hugging_face(files, settings, "model.language_model.")


_family = functools.partial(
    Family, gguf="gemma4", defaults=_DEFAULTS, from_gguf=_gguf, may_have_experts=True
)
FAMILIES = (
    _family("Gemma 4", hugging_face="Gemma4ForCausalLM", from_hugging_face=_hugging_face),
    _family(
        "Gemma 4, text",
        hugging_face="Gemma4ForConditionalGeneration",
        from_hugging_face=_text,
        within="text_config",
    ),
)

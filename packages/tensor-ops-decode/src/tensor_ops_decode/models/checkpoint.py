"""Settings and tensors that the files of all families have in the same form, as a `Decoder`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tensor_ops_decode.models.decoder import GGUF_NAMES, HUGGING_FACE_NAMES, Decoder
from tensor_ops_decode.models.rope import Rope, gguf_rope, hugging_face_rope
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = [
    "DEFAULTS",
    "attention_layers",
    "gguf_decoder",
    "hugging_face_decoder",
    "layer_ropes",
    "layer_windows",
]

#: What most configurations of transformers say where config.json does not; families differ in some.
DEFAULTS: dict[str, Any] = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}

# The matrices of a layer that have a bias where config.json says so.
_BIASES = {"attention_bias": ("q", "k", "v", "o"), "mlp_bias": ("gate", "up", "down")}


def gguf_decoder(files: Weights, settings: ModelSettings, **given: Any) -> Decoder:
    """Return what a GGUF file says of a model.

    The settings are the metadata of the architecture, without its name in front. The family gives
    the fields of `Decoder` that it knows better.
    """
    settings.require("rope.scale_linear", 1.0)
    settings.require("attention.causal", True)
    heads, hidden = settings.size("attention.head_count"), settings.size("embedding_length")
    head_size = settings.size("attention.key_length", hidden // heads)
    settings.require("attention.value_length", head_size)
    layers = settings.size("block_count")
    if "ropes" not in given:
        given["ropes"] = (gguf_rope(files, settings, head_size),) * layers
    names = given.pop("names", GGUF_NAMES)
    is_tied = not _has_both(files, names)
    names = _tied_names(files, names) if is_tied else names
    fields = {
        "names": names,
        "hidden": hidden,
        "layers": layers,
        "heads": heads,
        "kv_heads": _kv_heads(settings, "attention.head_count_kv", heads),
        "head_size": head_size,
        "intermediate": settings.size("feed_forward_length"),
        "vocabulary": _rows(files, f"{names['embedding']}.weight"),
        "context": settings.size("context_length"),
        "eps": settings.number("attention.layer_norm_rms_epsilon"),
        "windows": (0,) * layers,
        "scale": head_size**-0.5,
        "is_tied": is_tied,
        # llama.cpp adds whatever biases a file has.
        "may_have_biases": True,
    }
    return Decoder(**(fields | given))


def hugging_face_decoder(
    files: Weights,
    settings: ModelSettings,
    rotates_in_part: bool = False,
    bias_flags: Iterable[str] = (),
    **given: Any,
) -> Decoder:
    """Return what config.json says of a model.

    The settings have the defaults of the family, which says whether its models may rotate a part of
    each head, by which flags their matrices have biases, and the fields of `Decoder` that it knows
    better.
    """
    if "activation" not in given:
        settings.require("hidden_act", "silu")
    settings.require("is_causal", True)
    heads, hidden = settings.size("num_attention_heads"), settings.size("hidden_size")
    head_size, layers = _head_size(settings), settings.size("num_hidden_layers")
    if "ropes" not in given:
        # transformers 5 keeps both settings of the rotation in one object.
        is_old = bool(settings.values.get("rope_scaling"))
        rope = settings.section("rope_scaling" if is_old else "rope_parameters")
        made = hugging_face_rope(settings, rope, head_size, in_part=rotates_in_part)
        given["ropes"] = (made,) * layers
    names = _names_in(files, given.pop("names", HUGGING_FACE_NAMES))
    # A matrix that is missing though the file promises two is an error.
    is_tied = settings.flag("tie_word_embeddings") and not _has_both(files, names)
    fields = {
        "names": _tied_names(files, names) if is_tied else names,
        "hidden": hidden,
        "layers": layers,
        "heads": heads,
        "kv_heads": _kv_heads(settings, "num_key_value_heads", heads),
        "head_size": head_size,
        "intermediate": settings.size("intermediate_size"),
        "vocabulary": settings.size("vocab_size"),
        "context": settings.size("max_position_embeddings"),
        "eps": settings.number("rms_norm_eps"),
        "windows": (0,) * layers,
        "scale": head_size**-0.5,
        "is_tied": is_tied,
        "biases": _promised_biases(files, settings, bias_flags, names),
    }
    return Decoder(**(fields | given))


def attention_layers(settings: ModelSettings) -> tuple[ModelSettings, tuple[bool, ...]]:
    """Return which layers of a GGUF file have attention, those with heads of keys and values.

    The settings, which have a number for each layer, are returned with the one of these.
    """
    layers, heads = settings.size("block_count"), settings.values.get("attention.head_count_kv")
    of_layers = heads if isinstance(heads, list) else [heads] * layers
    if len(of_layers) != layers or len({*map(repr, of_layers)} - {"0"}) != 1:
        raise FileFormatError(
            f"{settings.where}: attention.head_count_kv must have one number for the layers with "
            f"attention and 0 for each of the others, of {layers}, got {heads!r:.80}"
        )
    values = {**settings.values, "attention.head_count_kv": max(of_layers, key=repr)}
    return ModelSettings(settings.where, values), tuple(each != 0 for each in of_layers)


def layer_windows(settings: ModelSettings, is_windowed: Callable[[int], bool]) -> tuple[int, ...]:
    """Return the window of each layer that config.json describes, 0 for none.

    `is_windowed` says whether a layer has it, where the file does not list the types of the layers.
    """
    windowed = _windowed_layers(settings, is_windowed)
    # A setting that no layer uses may be anything.
    window = settings.size_or_null("sliding_window") if any(windowed) else 0
    return tuple(window if each else 0 for each in windowed)


def layer_ropes(
    settings: ModelSettings, windows: Sequence[int], sizes: Sequence[int] = ()
) -> tuple[Rope, ...]:
    """Return the rotation of each layer, where those with a window have one of their own.

    The setting ``rope_local_base_freq`` is the base of theirs where config.json gives them none.
    `sizes` are those of the layers' heads, where they differ.
    """
    # Before version 5, transformers kept the two rotations in settings of other names.
    ropes, old = settings.section("rope_parameters"), settings.section("rope_scaling")
    is_new = settings.values.get("rope_parameters") is not None
    new = ropes.section("full_attention").values if is_new else {"rope_type": "default"}
    described = {
        True: (ropes.section("sliding_attention").values, "rope_local_base_freq"),
        False: ({**new, **old.values}, "rope_theta"),
    }
    # transformers reads it beside the objects of the two, and not in them.
    truncate = {"truncate": ropes.values.get("truncate", True)}
    kinds = list(
        zip(map(bool, windows), sizes or [_head_size(settings)] * len(windows), strict=True)
    )
    # A setting that no layer uses may be anything.
    made = {
        (kind, size): hugging_face_rope(
            settings,
            ModelSettings(settings.where, {**described[kind][0], **truncate}),
            size,
            base=described[kind][1],
        )
        for kind, size in dict.fromkeys(kinds)
    }
    return tuple(made[kind] for kind in kinds)


def _head_size(settings: ModelSettings) -> int:
    return settings.size(
        "head_dim", settings.size("hidden_size") // settings.size("num_attention_heads")
    )


def _windowed_layers(settings: ModelSettings, is_windowed: Callable[[int], bool]) -> list[bool]:
    """Return for each layer whether it has the window."""
    layers, types = settings.size("num_hidden_layers"), settings.values.get("layer_types")
    if types is None:
        return [is_windowed(layer) for layer in range(layers)]
    # The shorter name is one of older versions of transformers.
    known = {"full_attention": False, "attention": False, "sliding_attention": True}
    if not isinstance(types, list) or len(types) != layers:
        raise FileFormatError(f"{settings.where}: layer_types must be a list of {layers} types")
    for each in types:
        if not isinstance(each, str) or each not in known:
            raise FileFormatError(
                f"{settings.where}: layer_types has {each!r:.80}; supported are {', '.join(known)}"
            )
    return [known[each] for each in types]


def _kv_heads(settings: ModelSettings, name: str, heads: int) -> int:
    """Return how many heads keys and values have."""
    kv_heads = settings.size(name, heads)
    if heads % kv_heads:
        raise FileFormatError(
            f"{settings.where}: {name} must divide the {heads} heads of queries, got {kv_heads}"
        )
    return kv_heads


def _has_both(files: Weights, names: Mapping[str, str]) -> bool:
    return {f"{names[role]}.weight" for role in ("embedding", "head")} <= set(files.names)


def _names_in(files: Weights, names: Mapping[str, str]) -> Mapping[str, str]:
    """Return the names in a folder, which lack ``model.`` if a model without a head wrote it."""
    bare = {role: name.removeprefix("model.") for role, name in names.items()}
    is_bare = f"{bare['embedding']}.weight" in files.names
    return bare if is_bare else names


def _tied_names(files: Weights, names: Mapping[str, str]) -> Mapping[str, str]:
    """Return the names of a model with one matrix, which may have the name of the head."""
    if f"{names['head']}.weight" in files.names:
        return {**names, "embedding": names["head"]}
    return names


def _promised_biases(
    files: Weights, settings: ModelSettings, flags: Iterable[str], names: Mapping[str, str]
) -> tuple[str, ...]:
    """Return which matrices of a layer have a bias by the flags of config.json."""
    known, layers = frozenset(files.names), range(settings.size("num_hidden_layers"))
    promised = [(flag, role) for flag in flags if settings.flag(flag) for role in _BIASES[flag]]
    for flag, role in promised:
        for module in (f"{names['layer'].format(layer)}{names[role]}" for layer in layers):
            name = f"{module}.bias"
            # Some layers have no such matrix.
            if f"{module}.weight" in known and name not in known:
                raise FileFormatError(
                    f"{settings.where}: {flag} is true, but tensor {name!r} is missing"
                )
    return tuple(role for _, role in promised)


def _rows(files: Weights, name: str) -> int:
    if name not in files.names:
        raise FileFormatError(f"{files.path}: tensor {name!r} is missing")
    return int(files.header(name).shape[0])

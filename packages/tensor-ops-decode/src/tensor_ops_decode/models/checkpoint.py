"""What the files of all families say in the same way, as a `Decoder`."""

from collections.abc import Callable
from typing import Any

from tensor_ops_decode.models.decoder import GGUF_NAMES, HUGGING_FACE_NAMES, Decoder
from tensor_ops_decode.models.rope import gguf_rope, hugging_face_rope
from tensor_ops_decode.models.settings import Settings
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["gguf_decoder", "hugging_face_decoder", "layer_windows"]


def gguf_decoder(files: Weights, settings: Settings, **given: Any) -> Decoder:
    """Return what a GGUF file says of a model.

    Parameters
    ----------
    files : Weights
    settings : Settings
        The metadata of the architecture, without its name in front.
    **given
        The fields of `Decoder` that the family knows better.
    """
    settings.require("rope.scale_linear", 1.0, 1.0)
    heads, hidden = settings.size("attention.head_count"), settings.size("embedding_length")
    head_size = _head_size(settings, "attention.key_length", hidden, heads)
    settings.require("attention.value_length", head_size, head_size)
    layers = settings.size("block_count")
    if "ropes" not in given:
        rotated = settings.size("rope.dimension_count", head_size)
        given["ropes"] = (gguf_rope(files, settings, rotated),) * layers
    fields = {
        "names": GGUF_NAMES,
        "hidden": hidden,
        "layers": layers,
        "heads": heads,
        "kv_heads": settings.size("attention.head_count_kv", heads),
        "head_size": head_size,
        "intermediate": settings.size("feed_forward_length"),
        "vocabulary": _rows(files, "token_embd.weight"),
        "context": settings.size("context_length"),
        "eps": settings.number("attention.layer_norm_rms_epsilon"),
        "windows": (0,) * layers,
        "scale": head_size**-0.5,
        "is_tied": "output.weight" not in files.names,
    }
    return Decoder(**(fields | given))


def hugging_face_decoder(
    files: Weights,
    settings: Settings,
    is_tied: bool = False,
    rotates_in_part: bool = False,
    **given: Any,
) -> Decoder:
    """Return what config.json says of a model.

    Parameters
    ----------
    files : Weights
    settings : Settings
    is_tied : bool, optional
        Whether the head is the embedding where config.json says nothing of it.
    rotates_in_part : bool, optional
        Whether models of the family may rotate a part of each head.
    **given
        The fields of `Decoder` that the family knows better.
    """
    if "activation" not in given:
        settings.require("hidden_act", "silu", "silu")
    heads, hidden = settings.size("num_attention_heads"), settings.size("hidden_size")
    head_size = given.get("head_size") or _head_size(settings, "head_dim", hidden, heads)
    layers = settings.size("num_hidden_layers")
    if "ropes" not in given:
        # transformers 5 keeps both settings of the rotation in one object.
        is_old = bool(settings.values.get("rope_scaling"))
        rope = settings.section("rope_scaling" if is_old else "rope_parameters")
        base = settings.number("rope_theta", 10000.0)
        made = hugging_face_rope(settings, rope, base, head_size, in_part=rotates_in_part)
        given["ropes"] = (made,) * layers
    fields = {
        "names": HUGGING_FACE_NAMES,
        "hidden": hidden,
        "layers": layers,
        "heads": heads,
        "kv_heads": settings.size("num_key_value_heads", heads),
        "head_size": head_size,
        "intermediate": settings.size("intermediate_size"),
        "vocabulary": settings.size("vocab_size", _rows(files, "model.embed_tokens.weight")),
        "context": settings.size("max_position_embeddings", 2048),
        "eps": settings.number("rms_norm_eps", 1e-6),
        "windows": (0,) * layers,
        "scale": head_size**-0.5,
        # A head that is missing though the file promises one is an error.
        "is_tied": settings.values.get("tie_word_embeddings", is_tied) is True
        and "lm_head.weight" not in files.names,
    }
    return Decoder(**(fields | given))


def layer_windows(
    settings: Settings, is_windowed: Callable[[int], bool], window: int
) -> tuple[int, ...]:
    """Return the window of each layer that config.json describes, 0 for none.

    Parameters
    ----------
    settings : Settings
    is_windowed : callable
        Whether a layer has the window, where the file does not list the types of the layers.
    window : int
        Where the file does not say it; 0 for none.
    """
    layers = settings.size("num_hidden_layers")
    window = settings.size_or_none("sliding_window", window)
    types = settings.values.get("layer_types")
    if types is None:
        return tuple(window if is_windowed(layer) else 0 for layer in range(layers))
    known = {"full_attention": 0, "sliding_attention": window}
    if not isinstance(types, list) or len(types) != layers:
        raise FileFormatError(f"{settings.where}: layer_types must be a list of {layers} types")
    for each in types:
        if not isinstance(each, str) or each not in known:
            raise FileFormatError(
                f"{settings.where}: layer_types has {each!r:.80}; supported are {', '.join(known)}"
            )
    return tuple(known[each] for each in types)


def _head_size(settings: Settings, name: str, hidden: int, heads: int) -> int:
    if settings.values.get(name) is None and hidden % heads:
        raise FileFormatError(
            f"{settings.where}: {heads} heads do not divide a hidden size of {hidden}"
        )
    return settings.size(name, hidden // heads)


def _rows(files: Weights, name: str) -> int:
    if name not in files.names:
        raise FileFormatError(f"{files.path}: tensor {name!r} is missing")
    return int(files.header(name).shape[0])

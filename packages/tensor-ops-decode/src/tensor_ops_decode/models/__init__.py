"""The families of models, one file each: what a file of the family says, as a `Decoder`.

Tested by tests/decode/models.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from tensor_ops_decode.models import (
    deepseek,
    gemma,
    gemma4,
    glm,
    gpt_oss,
    granite,
    granite4,
    lfm2,
    llama,
    mistral3,
    olmo,
    phi3,
    qwen,
    qwen35,
    smollm3,
)
from tensor_ops_decode.models.decoder import Decoder
from tensor_ops_decode.models.quantization import check_quantization
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["FAMILIES", "decoder_of"]

FAMILIES = (
    *llama.FAMILIES,
    *mistral3.FAMILIES,
    *smollm3.FAMILIES,
    *qwen.FAMILIES,
    *qwen35.FAMILIES,
    *phi3.FAMILIES,
    *gemma.FAMILIES,
    *gemma4.FAMILIES,
    *granite.FAMILIES,
    *granite4.FAMILIES,
    *olmo.FAMILIES,
    *lfm2.FAMILIES,
    *glm.FAMILIES,
    *deepseek.FAMILIES,
    *gpt_oss.FAMILIES,
)

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "expert_count")
_MOST_LISTED = 4096
_MODALITIES = ("vision_config", "audio_config")


def decoder_of(files: Weights) -> Decoder:
    """Return what the program of a model is made from.

    The class of a model without a head, such as ``Qwen3Model``, is of the family of the class with
    one. Names without ``model.`` tell that it has written the files, whatever class they name.

    Raises FileFormatError if no family knows its architecture, or if what the file says about it
    cannot be right.
    """
    architecture = files.metadata.get("general.architecture")
    is_gguf = architecture is not None
    if is_gguf:
        prefix = f"{architecture}."
        names = [name for name in files.metadata if name.startswith(prefix)]
        values = {name.removeprefix(prefix): _plain(files.metadata[name]) for name in names}
        settings, layers = ModelSettings(files.path, values), "block_count"
        families = {family.gguf: family for family in FAMILIES}
    else:
        listed = files.metadata.get("architectures")
        architecture = listed[0] if isinstance(listed, list) and listed else None
        settings, layers = ModelSettings(files.config, files.metadata), "num_hidden_layers"
        families = {family.hugging_face: family for family in FAMILIES}
        if architecture == "Gemma3ForCausalLM" and settings.values.get("text_config"):
            settings = settings.section("text_config")
    family, is_bare = None, False
    if isinstance(architecture, str):
        is_bare = not is_gguf and architecture.endswith("Model")
        with_head = f"{architecture.removesuffix('Model')}ForCausalLM"
        family = families.get(with_head if is_bare else architecture)
    # transformers' classes of these families read none of the settings of experts and modalities.
    if family is None or is_gguf:
        _refuse_kind(settings, may_have_experts=family is not None and family.may_have_experts)
    if not is_gguf:
        check_quantization(ModelSettings(files.config, files.metadata))
    if family is None:
        raise FileFormatError(
            f"{files.path}: unknown architecture {architecture!r:.80}; the known ones are "
            f"{', '.join(sorted(families))}"
        )
    if not is_gguf:
        given = settings.section(family.within) if family.within else settings
        settings = ModelSettings(settings.where, {**family.defaults, **given.values})
    # The number of layers is checked before anything is made for each of a billion.
    if layers in settings.values and settings.size(layers) > len(files.names):
        raise FileFormatError(
            f"{settings.where}: {layers} is {settings.size(layers)}, but there are only "
            f"{len(files.names)} tensors"
        )
    decoder = (family.from_gguf if is_gguf else family.from_hugging_face)(files, settings)
    is_bare = is_bare or decoder.names["embedding"] == "embed_tokens"
    if is_bare and not decoder.is_tied and f"{decoder.names['head']}.weight" not in files.names:
        return replace(decoder, is_tied=True, has_head=False)
    return decoder


def _plain(value: Any) -> Any:
    """Return a value that can be compared; of an array as many as a model has layers at most."""
    begin = value[:_MOST_LISTED] if isinstance(value, (list, np.ndarray)) else value
    return begin.tolist() if isinstance(begin, np.ndarray) else begin


def _refuse_kind(settings: ModelSettings, *, may_have_experts: bool) -> None:
    """Raise a FileFormatError for unknown mixtures of experts, and for models of more than text."""
    values = settings.values
    for name in _EXPERTS:
        if values.get(name) and not may_have_experts:
            mixtures = ", ".join(each.name for each in FAMILIES if each.may_have_experts)
            raise FileFormatError(
                f"{settings.where}: {name} is {values[name]!r:.80}; of mixtures of experts only "
                f"{mixtures} are supported"
            )
    for name in _MODALITIES:
        if values.get(name):
            raise FileFormatError(
                f"{settings.where}: there is a {name}; models of more than text are not "
                "supported, but a GGUF file of the text model may be"
            )
